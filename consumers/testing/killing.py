"""Killing a process where a run says: between the steps of a handler, and between what follows it."""

import asyncio
import types
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from consumers.context import Context
from consumers.handlers import Function, Handler
from consumers.received import Received
from consumers.testing.broker import Fuse, MemorySource
from consumers.testing.deliveries import Deliveries


@dataclass(frozen=True, slots=True)
class Kill:
    """Where in the life of which event the process dies."""

    event: int
    wait: int | None = None
    """While the handler waits for the so-manieth time, from 1; 0 is before it begins."""
    acknowledging: bool = False

    def words(self, name: str, waits: int) -> str:
        """What happens, for a person."""
        if self.acknowledging:
            return f"killed when {name} was completed, before it was acknowledged"
        if self.wait is None:
            return f"killed when the handler of {name} had returned, before its completion was written"
        if self.wait == 0:
            return f"killed before the handler of {name} began"
        return f"killed while the handler of {name} waited, at its await {self.wait} of {waits}"


@dataclass(slots=True)
class Run:
    """One run: what is published in which order, and where it is killed."""

    words: str
    order: Sequence[int]
    kill: Kill | None = None
    waits: Counter[int] = field(default_factory=Counter)
    """How often the handler of each event waited, at its first attempt."""


class Killing:
    """Kills the process at the place that the run says."""

    def __init__(self, run: Run, numbers: Mapping[UUID, int]) -> None:
        self._run = run
        self._numbers = numbers
        self._deliveries: Deliveries | None = None
        self._fuse = Fuse()
        self._loop = asyncio.get_running_loop()
        self._begun: set[int] = set()
        self.killed = asyncio.Event()

    def reaches(self, deliveries: Deliveries) -> None:
        """Know the process that is to be killed."""
        self._deliveries = deliveries
        self._fuse = deliveries.process.fuse
        self._before_acknowledging(deliveries.process.source)

    def around(self, handler: Handler) -> Function:
        """The handler's function, killed where it is meant to be."""
        return self._in_thread_of(handler) if handler.in_thread else self._in_loop_of(handler)

    def _in_loop_of(self, handler: Handler) -> Function:
        async def killable(event: Received[Any], context: Context) -> Any:
            number, first, fuse = *self._begin(event), self._current()
            if fuse.blown or (first and self._is_here(number, 0)):
                await self._die(fuse)
            answer = await _stepped(
                handler.call(event, context), lambda: first and self._waits(number), lambda: fuse.blown
            )
            if fuse.blown or (first and self._is_here(number, None)):
                await self._die(fuse)
            return answer

        return killable

    def _in_thread_of(self, handler: Handler) -> Function:
        def killable(event: Received[Any], context: Context) -> Any:
            number, first, fuse = *self._begin(event), self._current()
            if fuse.blown or (first and self._is_here(number, 0)):
                raise self._die_in_thread()
            answer = handler.call(event, context)
            if first and self._is_here(number, None):
                raise self._die_in_thread()
            return answer

        return killable

    def _begin(self, event: Received[Any]) -> tuple[int, bool]:
        number = self._numbers[event.event_id]
        first = number not in self._begun
        self._begun.add(number)
        return number, first

    def _waits(self, number: int) -> bool:
        self._run.waits[number] += 1
        if not self._is_here(number, self._run.waits[number]):
            return False
        self._kill()
        return True

    def _is_here(self, number: int, wait: int | None) -> bool:
        kill = self._run.kill
        return kill is not None and not kill.acknowledging and kill.event == number and kill.wait == wait

    def _current(self) -> Fuse:
        process = self._deliveries and self._deliveries.running
        return process.fuse if process else self._fuse

    def _kill(self) -> None:
        self._fuse.blown = True
        self.killed.set()
        if self._deliveries is not None:
            self._deliveries.poke()

    async def _die(self, fuse: Fuse) -> None:
        """Never come back: the process is gone."""
        if fuse is self._fuse:
            self._kill()
        await asyncio.Event().wait()

    def _die_in_thread(self) -> BaseException:
        self._fuse.blown = True
        self._loop.call_soon_threadsafe(self._kill)
        return RuntimeError("the process was killed")

    def _before_acknowledging(self, source: MemorySource) -> None:
        plain, kill = source.acknowledge, self._run.kill

        async def acknowledge(delivery: Any) -> bool:
            number = self._numbers[UUID(delivery.attributes["event_id"])]
            if kill is not None and kill.acknowledging and kill.event == number:
                await self._die(self._fuse)
            return await plain(delivery)

        source.acknowledge = acknowledge  # type: ignore[method-assign]


@types.coroutine
def _stepped(work: Awaitable[Any], dies: Callable[[], bool], is_dead: Callable[[], bool]) -> Generator[Any, Any, Any]:
    """Run the work, asking each time that it waits whether it dies there; then it is cancelled at that place."""
    steps = work.__await__()
    step: Callable[[Any], Any] = lambda _: next(steps)  # noqa: E731 -- what is done next, in the three ways there are
    value: Any = None
    dead = False
    while True:
        try:
            waited_for = step(value)
        except StopIteration as end:
            return end.value
        if not dead and dies():
            dead = True
            if waited_for is not None:
                waited_for.cancel()
            step, value = steps.throw, asyncio.CancelledError("the process was killed")
            continue
        try:
            value = yield waited_for
            step = steps.send
            if is_dead() and not dead:
                dead = True
                step, value = steps.throw, asyncio.CancelledError("the process was killed")
        except BaseException as error:  # noqa: BLE001 -- it is the work's
            step, value = steps.throw, error
