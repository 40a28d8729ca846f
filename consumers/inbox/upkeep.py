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
    """Runs each runner in a loop of its own, over one session that is there while one of them works."""

    def __init__(  # noqa: PLR0913 -- each by its name
        self,
        consumer: str,
        runners: Sequence[Runner],
        session: Session,
        *,
        observe: Observe,
        clock: Clock,
        jitter: Jitter = uniform,
    ) -> None:
        self._consumer = consumer
        self._runners = runners
        self._session = session
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
        """End the session."""
        await self._session.close()

    def cut(self) -> None:
        """End it without a word, and make none any more."""
        self._session.cut()

    def _tell(self, event: object) -> None:
        if isinstance(event, PassFailed):
            self._observe(UpkeepFailed(self._consumer, event.runner, event.error))
