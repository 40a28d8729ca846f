"""Where the deliveries of a batch handler meet: one call of its function for many of them.

Each delivery has its own worker, attempt and lease, and waits here for its own answer. The function is called when
there are as many as it takes, or when for a moment nobody joins. Whoever leaves before (its time is over, its lease is
lost, the process ends) gets no answer; when the last one has left, the call is cancelled.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from consumers.answers import for_each
from consumers.clock import Clock, Timer
from consumers.context import Context
from consumers.errors import TransientError, UsageError
from consumers.handlers import Handler
from consumers.outdated import outdated
from consumers.threads import Threads


class Seat:
    """One delivery's place in a call. `called` is done when the call begins, `answer` when it has answered for it."""

    def __init__(
        self, context: Context, held: Callable[[], AbstractContextManager[None]], given_up: Callable[[], bool]
    ) -> None:
        loop = asyncio.get_running_loop()
        self.context = context
        self.held = held
        """What holds the delivery's workbench while a thread works for it."""
        self.given_up = given_up
        """Whether it is not to be begun any more."""
        self.called: asyncio.Future[None] = loop.create_future()
        self.answer: asyncio.Future[Any] = loop.create_future()

    def leave(self) -> None:
        """Wait for nothing any more."""
        self.called.cancel()
        self.answer.cancel()

    def say(self, answer: Any) -> None:
        """Answer whoever still waits: with an outcome, a result, or what is to be raised."""
        if self.answer.done():
            return
        match answer:
            case asyncio.CancelledError():
                self.answer.set_exception(RuntimeError("the handler was cancelled by something of its own"))
            case StopIteration():
                self.answer.set_exception(RuntimeError("the handler raised StopIteration"))
            case BaseException():
                self.answer.set_exception(answer)
            case _:
                self.answer.set_result(answer)


class Batches:
    """All tables of a process, one for each batch handler."""

    def __init__(self, threads: Threads, clock: Clock) -> None:
        self._threads = threads
        self._clock = clock
        self._tables: dict[Handler, Table] = {}

    def join(self, handler: Handler, seat: Seat) -> None:
        """Sit down at the handler's table."""
        table = self._tables.get(handler)
        if table is None:
            table = self._tables[handler] = Table(handler, self._threads, self._clock)
        table.join(seat)


class Table:
    """Those of one handler that wait for its next call."""

    def __init__(self, handler: Handler, threads: Threads, clock: Clock) -> None:
        self._handler = handler
        self._threads = threads
        self._clock = clock
        self._waiting: list[Seat] = []
        self._calls: set[asyncio.Task[None]] = set()
        self._joined_at = 0.0
        self._timer: Timer | None = None
        self._is_time = False

    def join(self, seat: Seat) -> None:
        """Wait for the next call."""
        self._waiting.append(seat)
        self._joined_at = self._clock.monotonic()
        if self._timer is None and not self._is_time:
            self._timer = self._clock.call_later(self._handler.batch_wait, self._look)
        self._go()

    def _look(self) -> None:
        """Whether for a moment nobody has joined."""
        self._timer = None
        left = self._joined_at + self._handler.batch_wait - self._clock.monotonic()
        if left > 0:
            self._timer = self._clock.call_later(left, self._look)
            return
        self._is_time = True
        self._go()

    def _go(self) -> None:
        for seat in self._waiting:
            if seat.given_up():
                seat.leave()
        self._waiting = [seat for seat in self._waiting if not seat.called.done()]
        while self._waiting and len(self._calls) < self._handler.concurrency:
            if len(self._waiting) < self._handler.batch and not self._is_time:
                return
            seats, self._waiting = self._waiting[: self._handler.batch], self._waiting[self._handler.batch :]
            self._begin(seats)
        if not self._waiting:
            self._is_time = False
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def _begin(self, seats: Sequence[Seat]) -> None:
        call = asyncio.create_task(self._call(seats))
        self._calls.add(call)
        call.add_done_callback(self._ended)
        left = len(seats)

        def gone(answer: "asyncio.Future[Any]") -> None:
            nonlocal left
            left -= 1
            if not answer.cancelled():
                answer.exception()  # its delivery may have left as it was said
            if not left:
                call.cancel()

        for seat in seats:
            seat.called.set_result(None)
            seat.answer.add_done_callback(gone)

    def _ended(self, call: "asyncio.Task[None]") -> None:
        self._calls.discard(call)
        self._go()

    async def _call(self, seats: Sequence[Seat]) -> None:
        handler = self._handler
        try:
            answer = await (self._in_thread(seats) if handler.in_thread else self._in_loop(seats))
            answers = for_each(answer, len(seats), handler.name, silence_is_done=True)
        except (KeyboardInterrupt, GeneratorExit) as end:
            answers = [TransientError(f"the call was ended by {type(end).__name__}")] * len(seats)
            raise
        except BaseException as error:  # noqa: BLE001 -- whatever a handler raises is its answer, to each of them
            answers = [error if outdated(error) is None else _of_one(handler)] * len(seats)
        finally:
            for seat, each in zip(seats, answers, strict=True):
                seat.say(each)

    async def _in_loop(self, seats: Sequence[Seat]) -> Any:
        return await self._handler.call_batch([seat.context.event for seat in seats], [seat.context for seat in seats])

    async def _in_thread(self, seats: Sequence[Seat]) -> Any:
        def work() -> Any:
            with ExitStack() as held:
                for seat in seats:
                    held.enter_context(seat.held())
                events, contexts = [seat.context.event for seat in seats], [seat.context for seat in seats]
                return self._handler.call_batch(events, contexts)

        try:
            running = self._threads.run(work)
        except RuntimeError as error:
            raise TransientError(f"no thread for the handler: {error}", "NO_THREAD") from error
        return await running


def _of_one(handler: Handler) -> UsageError:
    return UsageError(
        f"{handler.name} let the OutdatedError of one event end its batch; catch it, and answer Skip for that event"
    )
