"""The lock of a relay that sleeps, which it may keep through a short pass."""

import asyncio
from contextlib import suppress

from relay.outbox.listening import Listening
from relay.outbox.sessions import FAILURES

# A pass that takes no longer keeps the lock: whoever stores an event meanwhile tells, and pays a little for it. In one
# that takes longer nobody does.
KEEP_SECONDS = 0.02


class Keeping:
    """The lock of one session at a time. Errors are raised where the relay rests, also those of a pass before it."""

    def __init__(self) -> None:
        self.mark: str | None = None
        """An xid above those of all who were not told that somebody sleeps; None while the lock is not held."""
        self._late: asyncio.TimerHandle | None = None
        self._giving: asyncio.Task[None] | None = None

    async def take(self, listening: Listening, seconds: float) -> bool:
        """Take the lock, unless another relay has it."""
        self.mark = await listening.begin(seconds)
        return self.mark is not None

    async def give(self, listening: Listening) -> None:
        """Give it back: nobody shall pay for telling while the relay is awake."""
        self.mark = None
        await listening.end()

    def keep(self, listening: Listening) -> None:
        """Let a pass begin; if it takes long, the lock is given back beside it."""
        # No task unless it does: most passes are short, and begin the sooner.
        self._late = asyncio.get_running_loop().call_later(KEEP_SECONDS, self._give_beside, listening)

    async def back(self) -> None:
        """End what `keep` began: the pass has ended."""
        if self._late is not None:
            self._late.cancel()
        giving, self._giving = self._giving, None
        if giving is not None:
            await giving

    async def lost(self) -> None:
        """Forget all of it: the session has ended, and the lock with it."""
        with suppress(*FAILURES):
            await self.back()
        self.mark = None

    def _give_beside(self, listening: Listening) -> None:
        self._giving = asyncio.create_task(self.give(listening))
