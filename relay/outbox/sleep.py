"""How a relay with nothing to do sleeps, and is woken by whoever stores an event.

Polling is the truth, a notification is a hint: whatever goes wrong here, the loop polls.

A relay that goes to sleep takes a lock that only one of them has. Whoever stores an event while it is held notifies;
whoever stored one before has an xid below the one that the sleeper takes next, its mark. So the sleeper looks again and
again until every transaction from before the mark has ended, and from then on waits: whatever comes now is told. Before
the next pass the lock is given back, and nobody notifies while relays are busy.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from relay.outbox.events import Looked
from relay.outbox.listening import Listening, Look
from relay.outbox.sessions import FAILURES, Open, Sessions, pause

# While transactions from before the mark are open: from the first pause doubling to the second in so many seconds, and
# then to the third.
FIRST_LOOK_SECONDS = 0.001
CLOSE_LOOK_SECONDS = 0.04
CLOSE_SECONDS = 2.0
FAR_LOOK_SECONDS = 0.5
# After work, more of it may be on its way: under a steady load no relay goes to sleep, and nobody notifies. The first
# pause, doubling to the second for as long as more comes, so that a pass has more to take than one row.
SETTLE_SECONDS = (0.01, 0.03)
# An emitter holds the lock for a moment as it looks whether somebody sleeps. So often is it tried before it counts as
# another relay's.
TRIES = 3
TRY_SECONDS = 0.001
# What no notification tells of, and no look: rows below the floors. A pass starts from nothing every ten minutes.
PASS_SECONDS = 600.0
# The end of the process waits no longer for a statement.
HURRY_SECONDS = 0.2
# A notification may be about something that cannot be taken now: after the first in vain, so long a pause doubling to
# the loop's.
VAIN_SECONDS = 0.01


class Floors(Protocol):
    """Below which ids no row waits."""

    @property
    def fresh_safe(self) -> int:
        """None without a key."""
        ...

    @property
    def ordered_safe(self) -> int:
        """None with a key."""
        ...

    def rewind(self) -> None:
        """Let the next claim start there."""
        ...

    def restart(self) -> None:
        """Let the next claim start at the first row: what was made due by hand may be below a floor."""
        ...


@dataclass(slots=True)
class _Wakes:
    """What became of the passes that were begun early."""

    due: bool = False  # the last look said that there is something to do
    told: bool = False  # a notification ended the last rest
    in_vain: int = 0  # notifications in a row after which there was nothing to do


class Sleeper:
    """Rests between two passes, on a connection of its own.

    `open_` makes it; `restless` says that a pass is needed soon whatever the table holds; `most_seconds` is the longest
    time between two looks.
    """

    def __init__(
        self,
        open_: Open,
        floors: Floors,
        most_seconds: float,
        observe: Callable[[object], None],
        restless: Callable[[], bool] = lambda: False,
    ) -> None:
        self._sessions = Sessions(open_, most_seconds, observe)
        self._floors = floors
        self._most_seconds = most_seconds
        self._observe = observe
        self._restless = restless
        self._wakes = _Wakes()
        self._another_sleeps = False
        self._steady = 0  # passes in a row that found work, and left some to the next

    async def rest(self, wake: asyncio.Event, seconds: float, *, worked: bool) -> None:
        """Return when there is something to do, or after `seconds` where only a pass can tell."""
        before, self._wakes = self._wakes, _Wakes()
        if before.told and not worked:
            self._wakes.in_vain = before.in_vain + 1
        listening = None if wake.is_set() else await self._sessions.wait(wake, seconds)
        if listening is None or wake.is_set():
            return
        hurry = asyncio.create_task(_hurry(listening, wake))
        try:
            await self._rest(listening, wake, seconds, worked=worked, overlook=before.due and not worked)
        except FAILURES as error:
            await self._sessions.lost(error, by_us=wake.is_set())
        finally:
            hurry.cancel()

    async def close(self) -> None:
        """End the session, also one that is being made."""
        await self._sessions.close()

    async def _rest(
        self, listening: Listening, wake: asyncio.Event, seconds: float, *, worked: bool, overlook: bool
    ) -> None:
        if worked:
            shortest, longest = SETTLE_SECONDS
            await pause(wake, min(longest, shortest * 2**self._steady))
            if (await self._look(listening)).claimable:
                self._steady = min(self._steady + 1, 16)
                self._found()
                return
            self._steady = 0
        elif self._wakes.in_vain > 1:
            await pause(wake, min(seconds, VAIN_SECONDS * 2 ** min(self._wakes.in_vain, 16)))
        if not listening.called and not wake.is_set():
            # What was told until now is seen by the look that follows the lock.
            listening.heard = False
            mark = await self._begin(listening)
            if mark is None:
                listening.heard = False  # the other one is told as well, and that is enough
                if not listening.called:
                    await pause(wake, seconds)
            else:
                await self._sleep(listening, wake, mark, seconds, overlook=overlook)
                if wake.is_set():
                    await self._sessions.close()  # which takes the lock with it, also where nobody answers
                    return
                # Before all else: nobody shall pay for telling while the relay is awake.
                await listening.end()
        if listening.called or listening.heard:
            self._wakes.told = True
            (self._floors.restart if listening.called else self._floors.rewind)()
            listening.called = False

    async def _begin(self, listening: Listening) -> str | None:
        for again in range(1 if self._another_sleeps else TRIES):
            if again:
                await asyncio.sleep(TRY_SECONDS)
            if (mark := await listening.begin(self._most_seconds)) is not None:
                self._another_sleeps = False
                return mark
        self._another_sleeps = True
        return None

    async def _sleep(
        self, listening: Listening, wake: asyncio.Event, mark: str, seconds: float, *, overlook: bool
    ) -> None:
        """Sleep until there is something to do; with `overlook`, more than what could not be taken just now."""
        began = self._now()
        between = FIRST_LOOK_SECONDS
        while True:
            looked_at = self._now()
            look = await self._look(listening, mark)
            if look.claimable and not overlook:
                self._found()
                return
            overlook &= look.claimable
            self._wakes.due = overlook
            if overlook or self._restless():
                await listening.wait(wake, _sooner(seconds, look))
                return
            self._observe(Looked())
            asleep = self._now() - began
            if look.settled:
                wait = min(self._most_seconds, PASS_SECONDS - asleep)
            else:
                # A look that takes long, for the sake of the database, is not repeated at once.
                wait = max(between, 5 * (self._now() - looked_at))
                between = min(2 * between, CLOSE_LOOK_SECONDS if asleep < CLOSE_SECONDS else FAR_LOOK_SECONDS)
            await listening.wait(wake, _sooner(wait, look))
            if listening.heard or listening.called or wake.is_set() or self._now() - began >= PASS_SECONDS:
                if self._now() - began >= seconds:
                    self._wakes.in_vain = 0
                return

    async def _look(self, listening: Listening, mark: str | None = None) -> Look:
        self._sessions.used()
        return await listening.look(self._floors.fresh_safe, self._floors.ordered_safe, mark)

    def _found(self) -> None:
        self._wakes.due = True
        self._floors.rewind()

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def _sooner(seconds: float, look: Look) -> float:
    return seconds if look.due_in_seconds is None else min(seconds, max(look.due_in_seconds, FIRST_LOOK_SECONDS))


async def _hurry(listening: Listening, wake: asyncio.Event) -> None:
    """Let no statement hold up a wake-up for long."""
    await wake.wait()
    await asyncio.sleep(HURRY_SECONDS)
    listening.cut()
