"""What an inbox needs beside receiving and claiming: it never holds either up, and its failures end nothing."""

import asyncio
from collections.abc import Sequence

from consumers.clock import Clock
from consumers.events import UpkeepFailed
from consumers.inbox.session import Session
from relay.kernel.backoff import Jitter, uniform
from relay.kernel.loop import Loop
from relay.kernel.observe import Observe, PassFailed
from relay.kernel.runner import Runner
from relay.kernel.worker import Worker

_PASS_SECONDS = 60.0


class Upkeep:
    """Runs each runner in a loop of its own, on a session of its own that is there while it works."""

    def __init__(  # noqa: PLR0913 -- each by its name
        self,
        consumer: str,
        runners: Sequence[Runner],
        sessions: Sequence[Session],
        *,
        observe: Observe,
        clock: Clock,
        jitter: Jitter = uniform,
    ) -> None:
        self._consumer = consumer
        self._runners = runners
        self._sessions = sessions
        self._observe = observe
        self._clock = clock
        self._jitter = jitter

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for runner in self._runners:
                worker = Worker(runner, self._clock, self._tell)
                loop = Loop(worker, self._clock, _PASS_SECONDS, self._jitter)
                tasks.create_task(loop.run(asyncio.Event()))

    async def close(self) -> None:
        """End what is left of the sessions."""
        for session in self._sessions:
            await session.close()

    def cut(self) -> None:
        """End them without a word, and make none any more."""
        for session in self._sessions:
            session.cut()

    def _tell(self, event: object) -> None:
        if isinstance(event, PassFailed):
            self._observe(UpkeepFailed(self._consumer, event.runner, event.error))
