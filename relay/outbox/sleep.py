"""How a relay with nothing to do sleeps, and is woken by whoever stores an event.

Polling is the truth, a notification is a hint: whatever goes wrong here, the loop polls.

A relay that goes to sleep takes a lock that only one of them has. Whoever stores an event while it is held notifies;
whoever stored one before has an xid below the one that the sleeper takes next, its mark. So the sleeper looks again and
again until every transaction from before the mark has ended, and from then on waits: whatever comes now is told. Before
the next pass the lock is given back, and nobody notifies while relays are busy.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from relay.outbox.events import Looked
from relay.outbox.listening import MOST_ROWS, Listening, Look, Place
from relay.outbox.rounds import Round
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
# The end of the process waits no longer for a statement.
HURRY_SECONDS = 0.2
# Where notifications and passes are about what cannot be taken now, one after another: the first pause between two
# looks or passes, doubling to the second.
VAIN_SECONDS = (0.01, 0.04)
# A look that takes long, for the sake of the database, is not repeated at once: after so many times as long.
LOOK_SHARE = 5

Closed = tuple[Sequence[str], Sequence[str]]


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

    @property
    def restarts_in(self) -> float:
        """In how many seconds a pass is needed whatever can be seen: what is below a floor no look finds."""
        ...

    def rewind(self) -> None:
        """Let the next claim start there."""
        ...

    def restart(self) -> None:
        """Let the next claim start at the first row: what was made due by hand may be below a floor."""
        ...


class Sleeper:
    """Rests between two passes, on a connection of its own.

    `open_` makes it; `closed` says which topics take nothing now, and which types of events go there: their rows wake
    nobody, and passes come at the pace of polls. `most_seconds` is the longest time between two looks.
    """

    def __init__(
        self,
        open_: Open,
        floors: Floors,
        most_seconds: float,
        observe: Callable[[object], None],
        closed: Callable[[], Closed] = lambda: ((), ()),
    ) -> None:
        self._sessions = Sessions(open_, most_seconds, observe)
        self._floors = floors
        self._most_seconds = most_seconds
        self._observe = observe
        self._closed = closed
        self._round = Round()
        self._early = False  # the last rest was ended by something to do,
        self._called = False  # or a call
        self._vain = 0  # passes in a row that were begun early and found nothing to do
        self._another_sleeps = False
        self._steady = 0  # passes in a row that found work, and left some to the next

    async def rest(self, wake: asyncio.Event, seconds: float, *, worked: bool) -> None:
        """Return when there is something to do, or after `seconds` where only a pass can tell."""
        self._round.passed(worked=worked)
        self._vain = self._vain + 1 if self._early and not worked else 0
        self._early = False
        listening = None if wake.is_set() else await self._sessions.wait(wake, seconds)
        if listening is None or wake.is_set():
            return
        hurry = asyncio.create_task(_hurry(listening, wake))
        try:
            await self._rest(listening, wake, seconds, worked=worked)
        except FAILURES as error:
            await self._sessions.lost(error, by_us=wake.is_set())
        finally:
            hurry.cancel()

    async def close(self) -> None:
        """End the session, also one that is being made."""
        await self._sessions.close()

    async def _rest(self, listening: Listening, wake: asyncio.Event, seconds: float, *, worked: bool) -> None:
        ends_at = _now() + seconds
        if worked:
            shortest, longest = SETTLE_SECONDS
            await pause(wake, min(longest, shortest * 2**self._steady))
            look = await self._look(listening, 1)
            if look.claimable:
                self._round.looked(look._replace(last_key=self._round.after), _now())
                self._steady = min(self._steady + 1, 16)
                self._found()
                return
            self._steady = 0
        elif self._vain:
            shortest, longest = VAIN_SECONDS
            # A pass that begins at the first row is dear.
            most = seconds if self._called else longest
            await pause(wake, min(most, shortest * 2 ** min(self._vain - 1, 16)))
        if not listening.called and not wake.is_set():
            mark = await self._begin(listening)
            if mark is None:
                listening.heard = False  # the other one is told as well, and that is enough
                if not listening.called:
                    await pause(wake, seconds)
            else:
                await self._sleep(listening, wake, mark, ends_at)
                if wake.is_set():
                    await self._sessions.close()  # which takes the lock with it, also where nobody answers
                    return
                # Before all else: nobody shall pay for telling while the relay is awake.
                await listening.end()
        if listening.called:
            self._early, self._called, listening.called = True, True, False
            self._floors.restart()
        elif listening.heard:
            self._floors.rewind()

    async def _begin(self, listening: Listening) -> str | None:
        for again in range(1 if self._another_sleeps else TRIES):
            if again:
                await asyncio.sleep(TRY_SECONDS)
            if (mark := await listening.begin(self._most_seconds)) is not None:
                self._another_sleeps = False
                return mark
        self._another_sleeps = True
        return None

    async def _sleep(self, listening: Listening, wake: asyncio.Event, mark: str, polls_at: float) -> None:
        """Sleep until there is something new to do, or by `polls_at` where only a pass can tell."""
        began = _now()
        restarts_at = max(polls_at, began + self._floors.restarts_in)
        close, (shortest, longest) = FIRST_LOOK_SECONDS, VAIN_SECONDS
        told = 0  # notifications in a row, each soon after the look before it
        while not (listening.called or wake.is_set()):
            # What was told until now is seen by this look.
            listening.heard = False
            looked_at = _now()
            look = await self._look(listening, MOST_ROWS, mark)
            now = _now()
            if self._round.looked(look, now):
                self._found()
                return
            if not self._round.any_claimable:
                self._observe(Looked())
            ends_at = polls_at if self._round.any_claimable or self._closed()[0] else restarts_at
            if now >= ends_at:
                return
            wait = took = now - looked_at
            if not look.settled:
                self._round.news()
                if not self._round.after or now - began >= CLOSE_SECONDS:
                    wait = max(LOOK_SHARE * took, close)
                    close = min(2 * close, CLOSE_LOOK_SECONDS if now - began < CLOSE_SECONDS else FAR_LOOK_SECONDS)
            elif self._round.whole:
                wait = self._most_seconds
            until = min(ends_at, max(self._round.due_at, now + FIRST_LOOK_SECONDS))
            if await listening.wait(wake, min(until, now + wait) - now):
                self._round.news()
                told = told + 1 if _now() - now < longest else 1
                # The first one is no storm: it is looked at at once.
                gap = max(min(longest, shortest * 2 ** min(told - 2, 16)), LOOK_SHARE * took) if told > 1 else 0.0
                await pause(wake, min(until, looked_at + gap) - _now())
            elif self._round.whole:
                self._round.news()

    async def _look(self, listening: Listening, rows: int, mark: str | None = None) -> Look:
        self._sessions.used()
        floors, (topics, types) = self._floors, self._closed()
        place = Place(floors.fresh_safe, floors.ordered_safe, self._round.after, topics, types)
        return await listening.look(place, rows, mark)

    def _found(self) -> None:
        self._early, self._called = True, False
        self._floors.rewind()


async def _hurry(listening: Listening, wake: asyncio.Event) -> None:
    """Let no statement hold up a wake-up for long."""
    await wake.wait()
    await asyncio.sleep(HURRY_SECONDS)
    listening.cut()


def _now() -> float:
    return asyncio.get_running_loop().time()
