"""One event through one consumer, in one line."""

from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any, overload
from uuid import UUID, uuid4

from consumers.app import Consumer
from consumers.context import Context
from consumers.dedup.protocol import Mode
from consumers.events import Fate
from consumers.handlers import Function, Handler
from consumers.outcome import Done
from consumers.received import Received
from consumers.testing.broker import DeadLetter
from consumers.testing.clock import FakeClock
from consumers.testing.deliveries import UNSET, Message, changed, in_memory
from idempotency import Claimed, Store


@dataclass(frozen=True, slots=True)
class Handled:
    """What became of an event at its first delivery."""

    fate: Fate
    attempt: int
    """From 1; 0 where no handler was meant to run."""
    code: str
    reason: str
    again_in: float | None
    """Seconds to the next attempt, where there is one."""
    error: BaseException | None
    """What the handler raised."""
    result: Any
    """What the handler returned, without the outcome around it."""
    event: Received[Any] | None
    """As the handler received it: upcast and validated. None where none ran."""
    dead_letters: tuple[DeadLetter, ...]


@dataclass(slots=True)
class _Seen:
    """What passed by the handlers."""

    event: Received[Any] | None = None
    result: Any = field(default=None)

    def beside(self, handler: Handler) -> Function:
        """The handler's function, watched."""
        if handler.in_thread:

            def watched(event: Received[Any], context: Context) -> Any:
                self.event = event
                answer = handler.call(event, context)
                return answer if isinstance(answer, Awaitable) else self._answered(answer)

            return watched

        async def watched_in_loop(event: Received[Any], context: Context) -> Any:
            self.event = event
            return self._answered(await handler.call(event, context))

        return watched_in_loop

    def _answered(self, answer: Any) -> Any:
        self.result = answer.result if isinstance(answer, Done) else answer
        return answer


@overload
async def handle(
    consumer: Consumer,
    event_type: Message,
    *,
    state: Any = UNSET,
    attempt: int = 1,
    clock: FakeClock | None = None,
) -> Handled: ...
@overload
async def handle(
    consumer: Consumer,
    event_type: str,
    data: Any = None,
    *,
    state: Any = UNSET,
    attempt: int = 1,
    clock: FakeClock | None = None,
    **fields: Any,
) -> Handled: ...
async def handle(  # noqa: PLR0913 -- each by its name, each with a default
    consumer: Consumer,
    event_type: str | Message,
    data: Any = None,
    *,
    state: Any = UNSET,
    attempt: int = 1,
    clock: FakeClock | None = None,
    **fields: Any,
) -> Handled:
    """Have a consumer act on one event in memory, and say what became of it.

    Example:
        handled = await handle(billing, "order.paid", {"order": "o-1", "cents": 700})
        assert handled.fate is Fate.DONE

    Args:
        consumer: With its handlers, models, upcasters, retries and timeouts.
        event_type: Of the event; or a message that a relay published, which has all that follows but the keywords.
        data: Of the event: anything that pydantic writes as JSON.
        state: What the handler gets as `ctx.state`, in place of the consumer's lifespan.
        attempt: Which attempt this is; those before it failed.
        clock: Which tells the time to the consumer.
        fields: Whatever else `Deliveries.publish` takes: `version`, `event_id`, `ordering_key`, `attributes`, …
    """
    if not isinstance(event_type, str) and (data is not None or fields):
        raise TypeError("a message has its own data and fields; give them with an event_type alone")
    seen = _Seen()
    watched = changed(consumer, handlers=lambda handlers: handlers.wrapped(seen.beside))
    async with in_memory(watched, state=state, clock=clock) as deliveries:
        named = fields.pop("event_id", None) if isinstance(event_type, str) else event_type.attributes.get("event_id")
        event_id = named or uuid4()
        if consumer.dedup is Mode.CLAIM:
            await _fail(deliveries.store, consumer.name, event_id, attempt - 1)
        elif attempt > 1:
            fields["delivery_attempt"] = attempt
        if isinstance(event_type, str):
            deliveries.publish(event_type, data, event_id=event_id, **fields)
            settled = await deliveries.wait_for(event_id)
        else:
            settled = await deliveries.deliver(event_type, **fields)
        return Handled(
            fate=settled.fate,
            attempt=settled.attempt,
            code=settled.code,
            reason=settled.reason,
            again_in=settled.again_in,
            error=settled.error,
            result=seen.result,
            event=seen.event,
            dead_letters=tuple(deliveries.dead_letters),
        )


async def _fail(store: Store, consumer: str, event_id: UUID | str, times: int) -> None:
    for _ in range(times):
        claim = await store.claim(consumer, event_id)
        assert isinstance(claim, Claimed)  # noqa: S101 -- nobody else is there
        await store.release(claim)
