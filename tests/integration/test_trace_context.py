"""Trace context: what is emitted in a span arrives with the span's name on it."""

from collections.abc import Iterator

import psycopg
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Span, Tracer, format_span_id, format_trace_id, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from relay import emit, emit_async
from tests.support.commands import Commands
from tests.support.outbox import event
from tests.support.pubsub import Channel, PubSubSide


@pytest.fixture
def tracer() -> Iterator[Tracer]:
    """What a service that traces has set up."""
    provider = TracerProvider(shutdown_on_exit=False)
    yield provider.get_tracer("orders")
    provider.shutdown()


def traceparent(span: Span) -> str:
    """The name of a span, as W3C writes it."""
    context = span.get_span_context()
    return f"00-{format_trace_id(context.trace_id)}-{format_span_id(context.span_id)}-{context.trace_flags:02x}"


async def test_a_message_names_the_span_in_which_its_event_was_emitted(
    tracer: Tracer, database: str, relay: Commands, pubsub: PubSubSide, channel: Channel
) -> None:
    """A consumer goes on with the trace of the request that caused the event, however late the relay is."""
    with psycopg.connect(database) as connection:
        with tracer.start_as_current_span("pay") as paying:
            emit(connection, [event(1), event(2)])
        emit(connection, event(3))
    async with await psycopg.AsyncConnection.connect(database) as asynchronous:
        with tracer.start_as_current_span("ship") as shipping:
            await emit_async(asynchronous, event(4))

    ran = relay("tick")
    assert ran.returncode == 0, ran.stderr
    arrived = {message.attributes["aggregate_id"]: message.attributes for message in await pubsub.drain(channel)}

    names = {number: attributes.get("traceparent") for number, attributes in arrived.items()}
    assert names == {"1": traceparent(paying), "2": traceparent(paying), "3": None, "4": traceparent(shipping)}
    continued = TraceContextTextMapPropagator().extract(arrived["4"])
    assert get_current_span(continued).get_span_context().span_id == shipping.get_span_context().span_id
