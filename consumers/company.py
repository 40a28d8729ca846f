"""Consumers of one process: they run side by side, tell how they are, and end together."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from consumers.errors import ConfigurationError
from consumers.events import ConsumerStarted
from consumers.outside import Outside
from consumers.runtime import Runtime
from relay import errors as relay_errors
from relay.kernel.clock import Clock
from relay.kernel.observe import LoopDied, Observe

if TYPE_CHECKING:
    from consumers.app import Consumer

# What is wrong however often it is tried, and is said in a sentence.
_WRONG = (ConfigurationError, relay_errors.ConfigurationError)


class Supplies(Protocol):
    """Builds what each consumer works with."""

    def of(self, consumer: "Consumer", observe: Observe) -> Outside:
        """What this one works with. Raises ConfigurationError where it cannot be built."""
        ...


class Company:
    """Several consumers, or one. `end` is called with the reason when one of them dies: all others should stop then."""

    def __init__(  # noqa: PLR0913 -- each by its name
        self,
        consumers: "Sequence[Consumer]",
        supplies: Supplies,
        observe: Observe,
        clock: Clock,
        *,
        soft_timeout: float,
        stats_seconds: float,
        end: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._consumers = consumers
        self._supplies = supplies
        self._observe = observe
        self._clock = clock
        self._soft_timeout = soft_timeout
        self._stats_seconds = stats_seconds
        self._end = end
        self._failures: list[Exception] = []
        self._works = False

    @property
    def misconfigured(self) -> bool:
        """Whether it ends before anything has worked, by what a sentence says."""
        return not self._works and any(isinstance(error, _WRONG) for error in self._failures)

    async def work(self, stopping: asyncio.Event) -> tuple[str, ...]:
        """Work until `stopping` is set, and name the handlers that had to be abandoned.

        Raises what the first one died of, when all have ended. When cancelled, they end as soon as they can.
        """
        members = [asyncio.create_task(self._member(consumer, stopping)) for consumer in self._consumers]
        if not members:
            await stopping.wait()
            return ()
        try:
            await asyncio.wait(members)
        except asyncio.CancelledError:
            for member in members:
                member.cancel()
            await asyncio.wait(members)
            raise
        if self._failures:
            raise self._failures[0]
        return tuple(name for member in members for name in member.result())

    async def _member(self, consumer: "Consumer", stopping: asyncio.Event) -> tuple[str, ...]:
        started = asyncio.Event()

        def observe(event: object) -> None:
            if isinstance(event, ConsumerStarted):
                self._works = True
                started.set()
            self._observe(event)

        try:
            runtime = Runtime(consumer, self._supplies.of(consumer, observe))
            return await self._run(runtime, started, stopping)
        except Exception as error:  # noqa: BLE001 -- raised again when the others have ended
            if isinstance(error, _WRONG) and not started.is_set():
                # Whoever gets it has a sentence to tell.
                self._failures.append(_of(consumer, error))
            else:
                self._failures.append(error)
                self._observe(LoopDied(consumer.name, error))
            self._end(f"consumer {consumer.name} {'died' if started.is_set() else 'could not start'}")
            return ()

    async def _run(self, runtime: Runtime, started: asyncio.Event, stopping: asyncio.Event) -> tuple[str, ...]:
        running = asyncio.create_task(runtime.run(stopping, self._soft_timeout))
        beside = [
            asyncio.create_task(self._tell(runtime, started)),
            asyncio.create_task(_cut_short(running, started, stopping)),
        ]
        try:
            return await running
        except asyncio.CancelledError as error:
            if _cancelled_here():
                raise
            if not stopping.is_set():
                # Nobody here cancels a consumer that works; unnoticed it would look like an orderly end.
                raise RuntimeError("the consumer was cancelled from outside") from error
            return ()
        finally:
            for task in beside:
                task.cancel()
            await asyncio.wait(beside)

    async def _tell(self, runtime: Runtime, started: asyncio.Event) -> None:
        """Statistics now and then, and in the end those of the time since."""
        await started.wait()
        never, since = asyncio.Event(), self._clock.monotonic()
        try:
            while not await self._clock.wait(never, self._stats_seconds):
                await runtime.look()
                now = self._clock.monotonic()
                self._observe(runtime.stats(now - since))
                since = now
        finally:
            self._observe(runtime.stats(self._clock.monotonic() - since))


async def _cut_short(running: "asyncio.Task[tuple[str, ...]]", started: asyncio.Event, stopping: asyncio.Event) -> None:
    """Whoever has not begun to work has nothing to finish."""
    await stopping.wait()
    if not started.is_set():
        running.cancel()


def _of(consumer: "Consumer", error: Exception) -> ConfigurationError:
    named = ConfigurationError("\n".join(f"consumer {consumer.name!r}: {line}" for line in str(error).splitlines()))
    named.__cause__ = error
    return named


def _cancelled_here() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
