"""Runs the handler of one event, and says in an outcome what it did, however it ended."""

import asyncio
import inspect
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any

from pydantic import ValidationError

from consumers.batches import Batches, Seat
from consumers.classification import Fatal, Transient, code_of
from consumers.clock import Clock
from consumers.context import Context, Surroundings
from consumers.decode import decode
from consumers.dedup.protocol import Begun
from consumers.errors import TransientError, UsageError
from consumers.events import HandlerOverdue
from consumers.handlers import Handler, Handlers, Meant, TooNew, TooOld, Unhandled, Upcaster
from consumers.job import Cancelled, Job
from consumers.outcome import OUTCOMES, Dead, Done, Invalid, Outcome, Retry, Skip
from consumers.outdated import outdated
from consumers.received import Received
from consumers.threads import Threads
from consumers.workbench import Workbench
from relay.kernel.failure import sentence
from relay.kernel.observe import Observe


class _AbandonedError(asyncio.CancelledError):
    """The process ends, and nothing can be said of the handler."""


class _MisfitError(Exception):
    """The data is not what the handler's model takes."""


class _LateError(Exception):
    """The handler was cancelled at its timeout."""


class Handling:
    """Calls handlers. What they raise is an outcome; only a cancellation of our own comes out otherwise."""

    def __init__(
        self,
        handlers: Handlers,
        around: Surroundings,
        threads: Threads,
        observe: Observe,
        clock: Clock,
    ) -> None:
        self._handlers = handlers
        self._around = around
        self._threads = threads
        self._observe = observe
        self._clock = clock
        self._batches = Batches(threads, clock)

    async def run(self, job: Job, begun: Begun) -> tuple[Outcome | Cancelled, BaseException | None]:
        """Handle the event, and answer with the outcome and with what was raised, if anything was."""
        event = begun.event
        match self._handlers.resolve(event.event_type, event.version, event.recipient):
            case Meant(handler, upcasters):
                pass
            case TooNew(_, newest):
                reason = f"version {event.version} of {event.event_type} is newer than {newest}, the newest handled one"
                return Retry(reason, "NEWER_VERSION"), None
            case TooOld(_, missing):
                reason = (
                    f"version {event.version} of {event.event_type} cannot be handled: there is no upcaster from "
                    f"version {missing}"
                )
                return Dead(reason, "NO_UPCASTER"), None
            case Unhandled():
                return Skip("no handler"), None
        try:
            event = _as_it_came(job, event)
            watched = _watched(event)
            event = _fitted(event, handler, upcasters)
        except _MisfitError as error:
            return Invalid(str(error), "INVALID_DATA"), error.__cause__
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001 -- the user's own code, judged as a handler's error is
            return self._judge(handler, error), error
        bench = self._around.workshop.bench(event, begun)
        try:
            context = Context(self._around, event, begun.attempt, bench, begun, watched)
            answer = await self._call(job, handler, context, bench)
        except BaseException:  # whatever ends the attempt, what it worked with ends as well
            bench.abandon()
            raise
        await bench.close()
        return answer

    async def _call(
        self, job: Job, handler: Handler, context: Context, bench: Workbench
    ) -> tuple[Outcome | Cancelled, BaseException | None]:
        if job.cut is not None:
            return job.cut, None
        job.since, job.entered = self._clock.monotonic(), True
        try:
            if handler.in_thread:
                answer = await self._in_thread(job, handler, context, bench)
            else:
                answer = await self._in_loop(job, handler, context, bench)
        except (_AbandonedError, KeyboardInterrupt, GeneratorExit):
            raise
        except asyncio.CancelledError as error:
            if job.cut is not None:
                return job.cut, error
            return self._judge(handler, error, bench), error
        except _LateError as error:
            return Retry(bench.failed_at(error, str(error)), "TIMEOUT"), error.__cause__
        except BaseException as error:  # noqa: BLE001 -- whatever a handler raises is its answer
            if (reason := outdated(error)) is not None:
                return Skip(reason), None
            return self._judge(handler, error, bench), error
        return self._answer(handler, context, answer)

    async def _seated(self, job: Job, handler: Handler, context: Context, bench: Workbench) -> Seat | None:
        """Wait until the batch handler is called; its time begins there. None for a handler of one event."""
        if not handler.batch:
            return None
        seat = Seat(context, bench.held, lambda: job.cut is not None)
        self._batches.join(handler, seat)
        job.in_handler = True
        try:
            await seat.called
        except asyncio.CancelledError:
            was_called = seat.called.done() and not seat.called.cancelled()
            seat.leave()
            if was_called and handler.in_thread:
                raise _AbandonedError from None
            raise
        finally:
            job.in_handler = False
        job.since = self._clock.monotonic()
        return seat

    async def _in_loop(self, job: Job, handler: Handler, context: Context, bench: Workbench) -> Any:
        limit: asyncio.Timeout | None = None
        answered = False
        try:
            seat = await self._seated(job, handler, context, bench)
            async with self._clock.timeout(_seconds(handler)) as limit:
                job.in_handler = True
                try:
                    answer = await (handler.call(context.event, context) if seat is None else seat.answer)
                    answered = True
                    return answer
                finally:
                    job.in_handler = False
        except TimeoutError as error:
            if limit is None or not limit.expired():
                raise
            raise _LateError(f"timed out after {_seconds(handler):g} s") from error
        finally:
            await self._take_back(job, answered=answered)

    async def _take_back(self, job: Job, *, answered: bool) -> None:
        """What the handler was cancelled by, or has cancelled, must not reach what comes after it on this task."""
        task = asyncio.current_task()
        if task is None or not task.cancelling():
            return
        if job.cut is None and self._around.stopping() and not answered:
            raise _AbandonedError
        while task.cancelling():
            task.uncancel()
        with suppress(asyncio.CancelledError):  # before Python 3.13 it still comes, with the next await
            await asyncio.sleep(0)

    async def _in_thread(self, job: Job, handler: Handler, context: Context, bench: Workbench) -> Any:
        seat = await self._seated(job, handler, context, bench)
        try:
            future = (
                self._threads.run(lambda: bench.in_thread(lambda: handler.call(context.event, context)))
                if seat is None
                else seat.answer
            )
        except RuntimeError as error:
            # No fault of the event, whatever the consumer takes for fatal.
            raise TransientError(f"no thread for the handler: {error}", "NO_THREAD") from error
        seconds = _seconds(handler)
        timer = None
        if seconds is not None:
            overdue = HandlerOverdue(self._around.consumer, job.subject, seconds)
            timer = self._clock.call_later(seconds, self._observe, overdue)
        try:
            return await future
        except asyncio.CancelledError:
            if future.cancelled():
                # The process ends without it. It still runs, so that nobody else may: its lease is left to expire.
                raise _AbandonedError from None
            if future.done():
                return future.result()  # it has answered meanwhile
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def _answer(
        self, handler: Handler, context: Context, answer: Any
    ) -> tuple[Outcome | Cancelled, BaseException | None]:
        if isinstance(answer, Awaitable):
            if inspect.iscoroutine(answer):
                answer.close()
            error = UsageError(f"{handler.name} answered with an awaitable that nobody awaits; make it async def")
            return self._judge(handler, error), error
        if isinstance(answer, OUTCOMES):
            return answer, None
        if answer is None:
            return context.deferred or Done(), None
        return Done(answer), None

    def _judge(self, handler: Handler, error: BaseException, bench: Workbench | None = None) -> Outcome:
        raised = error
        if isinstance(error, asyncio.CancelledError):
            error = RuntimeError("the handler was cancelled by something of its own")
        reason = sentence(error)
        if bench is not None:
            reason = bench.failed_at(raised, reason)
        if not isinstance(error, Exception):
            return Retry(reason, code_of(error))
        match handler.classification.verdict(error):
            case Transient(code, delay):
                return Retry(reason, code, delay)
            case Fatal(code):
                return Dead(reason, code)


def _seconds(handler: Handler) -> float | None:
    return None if handler.timeout is None else handler.timeout.total_seconds()


def _as_it_came(job: Job, event: Received[Any]) -> Received[Any]:
    """The event; out of the message once more where an earlier attempt may have changed its data."""
    if job.read:
        again = decode(job.delivery)
        assert isinstance(again, Received)  # noqa: S101 -- it was one before
        job.subject = event = again
    job.read = True
    return event


def _watched(event: Received[Any]) -> dict[str, Any]:
    """What the event says of its source row; taken before any model or upcaster, which know nothing of it."""
    watched = event.data.get("watched") if isinstance(event.data, dict) else None
    return dict(watched) if isinstance(watched, dict) else {}


def _fitted(event: Received[Any], handler: Handler, upcasters: tuple[Upcaster, ...]) -> Received[Any]:
    """The event with the data that its handler takes. Raises _MisfitError, and whatever the user's own code raises."""
    data = event.data
    for upcast in upcasters:
        data = upcast(data)
    if handler.data is not None:
        try:
            data = handler.data.validate_python(data)
        except ValidationError as error:
            raise _MisfitError(f"data of {event.event_type}: {_faults(error)}") from error
    return event if data is event.data else _with_data(event, data)


def _with_data(event: Received[Any], data: Any) -> Received[Any]:
    return Received(
        event_id=event.event_id,
        event_type=event.event_type,
        version=event.version,
        occurred_at=event.occurred_at,
        data=data,
        actor=event.actor,
        aggregate_type=event.aggregate_type,
        aggregate_id=event.aggregate_id,
        sequence=event.sequence,
        created_at=event.created_at,
        ordering_key=event.ordering_key,
        message_id=event.message_id,
        recipient=event.recipient,
        attributes=event.attributes,
    )


def _faults(error: ValidationError) -> str:
    """What is wrong and where, without the values."""
    faults = error.errors(include_url=False, include_input=False, include_context=False)
    return "; ".join(f"{'.'.join(map(str, each['loc'])) or 'the whole'}: {each['msg']}" for each in faults[:5])[:500]
