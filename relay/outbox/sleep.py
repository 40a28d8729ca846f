"""How a relay with nothing to do sleeps, and is woken by whoever stores an event.

Polling is the truth, a notification is a hint: whatever goes wrong here, the loop polls.

A relay that goes to sleep takes a lock that only one of them has. Whoever stores an event while it is held notifies;
whoever stored one before has an xid below the one that the sleeper takes next, its mark. So the sleeper looks again and
again until every transaction from before the mark has ended, and from then on waits: whatever comes now is told. Before
the next pass the lock is given back, and nobody notifies while relays are busy.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

import psycopg

from relay.errors import RelayError
from relay.outbox.events import ListenConnected, ListenLost, Looked
from relay.outbox.listening import DeafError, Listening, Look

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
# Before the connection is tried again: after an error, and where nothing is heard.
LOST_SECONDS = (0.5, 30.0)
DEAF_SECONDS = (30.0, 300.0)
# A session that lasted so long was a good one.
STEADY_SECONDS = 60.0
# A notification may be about something that cannot be taken now: after the first in vain, so long a pause doubling to
# the loop's.
VAIN_SECONDS = 0.01

_FAILURES = (psycopg.Error, RelayError, OSError)

Open = Callable[[], Awaitable[Listening]]


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
        self._open = open_
        self._floors = floors
        self._most_seconds = most_seconds
        self._observe = observe
        self._restless = restless
        self._wakes = _Wakes()
        self._another_sleeps = False
        self._steady = 0  # passes in a row that found work, and left some to the next
        self._listening: Listening | None = None
        self._opening: asyncio.Task[Listening] | None = None
        self._opened_at = 0.0
        self._open_at = 0.0
        self._failures = 0
        self._told_lost = False

    async def rest(self, wake: asyncio.Event, seconds: float, *, worked: bool) -> None:
        """Return when there is something to do, or after `seconds` where only a pass can tell."""
        before, self._wakes = self._wakes, _Wakes()
        if before.told and not worked:
            self._wakes.in_vain = before.in_vain + 1
        listening = await self._connected(wake, seconds)
        if listening is None or wake.is_set():
            return
        try:
            await self._rest(listening, wake, seconds, worked=worked, overlook=before.due and not worked)
        except _FAILURES as error:
            await self._lost(error)

    async def close(self) -> None:
        """End the session, also one that is being made."""
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.cancel()
            await asyncio.wait({opening})
            if not opening.cancelled() and opening.exception() is None:
                await opening.result().close()
        listening, self._listening = self._listening, None
        if listening is not None:
            await listening.close()

    async def _rest(
        self, listening: Listening, wake: asyncio.Event, seconds: float, *, worked: bool, overlook: bool
    ) -> None:
        if worked:
            shortest, longest = SETTLE_SECONDS
            await _pause(wake, min(longest, shortest * 2**self._steady))
            if (await self._look(listening)).claimable:
                self._steady = min(self._steady + 1, 16)
                self._found()
                return
            self._steady = 0
        elif self._wakes.in_vain > 1:
            await _pause(wake, min(seconds, VAIN_SECONDS * 2 ** min(self._wakes.in_vain, 16)))
        if not listening.called and not wake.is_set():
            # What was told until now is seen by the look that follows the lock.
            listening.heard = False
            mark = await self._begin(listening)
            if mark is None:
                listening.heard = False  # the other one is told as well, and that is enough
                if not listening.called:
                    await _pause(wake, seconds)
            else:
                await self._sleep(listening, wake, mark, seconds, overlook=overlook)
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
            if (mark := await listening.begin()) is not None:
                self._another_sleeps = False
                return mark
        self._another_sleeps = True
        return None

    async def _sleep(
        self, listening: Listening, wake: asyncio.Event, mark: str, seconds: float, *, overlook: bool
    ) -> None:
        """Sleep until there is something to do; with `overlook`, more than what could not be taken just now."""
        began = self._now()
        pause = FIRST_LOOK_SECONDS
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
                wait = max(pause, 5 * (self._now() - looked_at))
                pause = min(2 * pause, CLOSE_LOOK_SECONDS if asleep < CLOSE_SECONDS else FAR_LOOK_SECONDS)
            await listening.wait(wake, _sooner(wait, look))
            if listening.heard or listening.called or wake.is_set() or self._now() - began >= PASS_SECONDS:
                if self._now() - began >= seconds:
                    self._wakes.in_vain = 0
                return

    async def _look(self, listening: Listening, mark: str | None = None) -> Look:
        return await listening.look(self._floors.fresh_safe, self._floors.ordered_safe, mark)

    def _found(self) -> None:
        self._wakes.due = True
        self._floors.rewind()

    async def _connected(self, wake: asyncio.Event, seconds: float) -> Listening | None:
        """The session; where there is none, None after `seconds`, in which one may be made."""
        if self._listening is not None:
            return self._listening
        if self._opening is None and self._now() >= self._open_at:
            self._opening = asyncio.create_task(self._opened())
        waiting: set[asyncio.Task[Any]] = {asyncio.create_task(wake.wait())}
        if self._opening is not None:
            waiting.add(self._opening)
        deadline = self._now() + seconds
        try:
            await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if self._opening is None or not self._opening.done():
                return None
            opening, self._opening = self._opening, None
            try:
                self._listening = opening.result()
            except _FAILURES as error:
                self._refused(error)
                await _pause(wake, deadline - self._now())
                return None
        finally:
            for task in waiting - {self._opening}:
                task.cancel()
        self._opened_at = self._now()
        self._told_lost = False
        self._observe(ListenConnected(self._listening.database))
        return self._listening

    async def _opened(self) -> Listening:
        return await self._open()

    async def _lost(self, error: BaseException) -> None:
        listening, self._listening = self._listening, None
        if listening is not None:
            await listening.close()
        if self._now() - self._opened_at >= STEADY_SECONDS:
            self._failures = 0
            self._tell(error, 0.0)
        else:
            self._refused(error)

    def _refused(self, error: BaseException) -> None:
        first, most = DEAF_SECONDS if isinstance(error, DeafError) else LOST_SECONDS
        wait = min(most, first * 2 ** min(self._failures, 16))
        self._failures += 1
        self._open_at = self._now() + wait
        self._tell(error, wait)

    def _tell(self, error: BaseException, wait: float) -> None:
        if not self._told_lost:
            self._told_lost = True
            self._observe(ListenLost(error, wait))

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def _sooner(seconds: float, look: Look) -> float:
    return seconds if look.due_in_seconds is None else min(seconds, max(look.due_in_seconds, FIRST_LOOK_SECONDS))


async def _pause(wake: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(max(0.0, seconds)):
            await wake.wait()
    except TimeoutError:
        return
