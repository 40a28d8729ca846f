"""How an event is written for the database: what becomes JSON, and what is refused before it is sent."""

import enum
import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from opentelemetry import baggage, context
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState, use_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from pydantic import BaseModel, Field

from relay import Actor, InvalidEventError
from relay.emit import _encode
from tests.support.outbox import event


class Colour(enum.Enum):
    """An enum of no JSON type."""

    RED = "red"


class Level(enum.IntEnum):
    """An enum that is a number."""

    HIGH = 3


@dataclass
class Point:
    """A plain dataclass."""

    x: int


class Line(BaseModel):
    """A model with an alias."""

    unit_price: Decimal = Field(alias="unitPrice")


def written(data: Any) -> Any:
    """What arrives of the data."""
    return json.loads(_encode([event(data=data)], order_lock=True))[0]["data"]


def nested(depth: int) -> list[Any]:
    """Lists in lists."""
    inner: list[Any] = []
    for _ in range(depth):
        inner = [inner]
    return inner


@pytest.mark.parametrize(
    ("data", "arrives"),
    [
        (None, None),
        (0, 0),
        ([], []),
        (datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=UTC), "2024-01-02T03:04:05.000006Z"),
        (date(2024, 1, 2), "2024-01-02"),
        (timedelta(hours=36), "P1DT12H"),
        (uuid.UUID(int=5), "00000000-0000-0000-0000-000000000005"),
        (Decimal("1.10"), "1.10"),
        (Colour.RED, "red"),
        (Level.HIGH, 3),
        (Point(1), {"x": 1}),
        (Line(unitPrice=Decimal("9.90")), {"unitPrice": "9.90"}),
        ({1}, [1]),
        ((1, 2), [1, 2]),
        (b"text", "text"),
        ({7: "a"}, {"7": "a"}),
        (2**200, 2**200),
        ("grüße 😀", "grüße 😀"),
        ("a literal \\u0000", "a literal \\u0000"),
        ({"\\u0000": "\\\\u0000"}, {"\\u0000": "\\\\u0000"}),
    ],
)
def test_data_is_written_the_way_pydantic_writes_it(data: Any, arrives: Any) -> None:
    """A service hands over what it has; a number that must stay exact becomes a text."""
    assert written({"value": [data]}) == {"value": [arrives]}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (float("nan"), "not JSON compliant"),
        (float("-inf"), "not JSON compliant"),
        ("a\0b", "NUL character"),
        ({"a": {"key\0": 1}}, "NUL character"),
        ("\\\0", "NUL character"),
        ("\ud800", "surrogates not allowed"),
        ({"\udfff": 1}, "surrogates not allowed"),
        (b"\xff", "invalid utf-8"),
        (object(), "Unable to serialize unknown type"),
        ({uuid.UUID(int=5): 1}, "keys must be"),
        ([10**5_000], "4300 digits"),
        (nested(100_000), "recursion"),
    ],
)
def test_what_is_not_json_is_refused_before_it_is_sent(data: Any, words: str) -> None:
    """An error of the database would cost the caller the transaction."""
    with pytest.raises(InvalidEventError, match=words) as refused:
        written({"value": data})
    assert str(refused.value).startswith("order.paid: the data ")


def test_of_many_events_the_one_that_is_refused_is_named() -> None:
    """By its place, from 0 as the function in SQL counts."""
    with pytest.raises(InvalidEventError, match=r"^event 1 \(order\.paid\): the data is not JSON: "):
        _encode([event(), event(data=float("nan"))], order_lock=True)
    with pytest.raises(InvalidEventError, match=r"^event 0 \(order\.paid\): the data contains a NUL character"):
        _encode([event(data="\0"), event()], order_lock=True)


def test_what_refers_to_itself_is_refused() -> None:
    """It has no end."""
    data: list[Any] = []
    data.append(data)

    with pytest.raises(InvalidEventError, match="Circular reference"):
        written(data)


def test_an_actor_keeps_its_further_fields_and_is_checked_like_data() -> None:
    """Nothing of it is replaced by null in silence."""
    since = datetime(2024, 1, 1, tzinfo=UTC)
    (sent,) = json.loads(_encode([event(actor=Actor(type="user", id="7", since=since))], order_lock=True))

    assert sent["actor"] == {"type": "user", "id": "7", "since": "2024-01-01T00:00:00Z"}
    with pytest.raises(InvalidEventError, match="not JSON compliant"):
        _encode([event(actor=Actor(type="user", id="7", score=float("inf")))], order_lock=True)


def test_only_what_was_said_is_sent() -> None:
    """The function's own defaults apply to the rest."""
    (sent,) = json.loads(_encode([event()], order_lock=True))
    (unlocked,) = json.loads(_encode([event()], order_lock=False))

    assert sorted(sent) == ["aggregate_id", "aggregate_type", "attributes", "data", "event_type", "version"]
    assert unlocked["order_lock"] is False


SPAN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@contextmanager
def in_span(*states: tuple[str, str]) -> Iterator[None]:
    """Inside the span SPAN, with baggage that is nobody else's business."""
    _, trace_id, span_id, _ = SPAN.split("-")
    span = SpanContext(
        int(trace_id, 16),
        int(span_id, 16),
        is_remote=False,
        trace_flags=TraceFlags(TraceFlags.SAMPLED),
        trace_state=TraceState(states),
    )
    token = context.attach(baggage.set_baggage("user", "7"))
    try:
        with use_span(NonRecordingSpan(span)):
            yield
    finally:
        context.detach(token)


def sent_attributes(*own: dict[str, str]) -> list[dict[str, str]]:
    """What one emit sends as the attributes of an event each."""
    events = [event(attributes=attributes) for attributes in own]
    return [sent["attributes"] for sent in json.loads(_encode(events, order_lock=True))]


def many(number: int) -> dict[str, str]:
    """So many attributes of an event's own."""
    return {f"own{n}": "x" for n in range(number)}


def test_every_event_of_an_emit_names_the_span_in_which_it_is_emitted() -> None:
    """And nothing else of the context: baggage may be secret."""
    with in_span(("vendor", "a"), ("other", "b")):
        sent = sent_attributes({}, {"tenant": "acme"})

    trace = {"traceparent": SPAN, "tracestate": "vendor=a,other=b"}
    assert sent == [trace, {"tenant": "acme", **trace}]


def test_outside_a_span_nothing_is_added() -> None:
    """Although OpenTelemetry is loaded, as it is here."""
    assert sent_attributes({}, {"tenant": "acme"}) == [{}, {"tenant": "acme"}]


@pytest.mark.parametrize("name", ["traceparent", "tracestate"])
def test_a_trace_that_the_event_names_itself_is_kept_whole(name: str) -> None:
    """Half of it from elsewhere would name no trace."""
    with in_span(("vendor", "a")):
        assert sent_attributes({name: "mine"}) == [{name: "mine"}]


@pytest.mark.parametrize(("own", "joins"), [(92, ["traceparent", "tracestate"]), (93, ["traceparent"]), (94, [])])
def test_the_trace_takes_only_the_room_that_is_left(own: int, joins: list[str]) -> None:
    """The event is worth more than its trace."""
    with in_span(("vendor", "a")):
        (sent,) = sent_attributes(many(own))
    assert sorted(sent.keys() - many(own).keys()) == joins


def test_a_tracestate_that_the_broker_would_refuse_stays_behind() -> None:
    """It may be longer than an attribute."""
    with in_span(*((f"vendor{n}", "x" * 250) for n in range(5))):
        assert sent_attributes({}) == [{"traceparent": SPAN}]


def test_a_trace_that_cannot_be_read_costs_a_warning_and_no_event(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One an emit, however many events it has."""

    def fail(*_: object) -> None:
        raise RuntimeError("no context today")

    monkeypatch.setattr(TraceContextTextMapPropagator, "inject", fail)
    with in_span():
        assert sent_attributes({}, {"tenant": "acme"}) == [{}, {"tenant": "acme"}]
    (warning,) = caplog.records
    assert (warning.name, warning.levelname) == ("relay.tracing", "WARNING")


def test_who_does_not_trace_loads_no_opentelemetry() -> None:
    """Not even when it emits."""
    script = "import sys, relay.tracing; print(relay.tracing.current(), 'opentelemetry' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "{} False"
