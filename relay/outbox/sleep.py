"""How a relay with nothing to do sleeps, and is woken by whoever stores an event.

Polling is the truth, a notification is a hint: whatever goes wrong here, the loop polls.

A relay that goes to sleep takes a lock that only one of them has. Whoever stores an event while it is held notifies;
whoever stored one before has an xid below the one that the sleeper takes next, its mark. So the sleeper looks again and
again until every transaction from before the mark has ended, and from then on waits: whatever comes now is told. Before
the next pass the lock is given back, and nobody notifies while relays are busy.

While events keep coming, it depends on who is faster. Where passes are, each event finds the relay at rest: it is told
of it as of the first one, keeps the lock through its short passes (`keeping`), and asks nothing in between. Where
events are, the relay is told of the next one before it has come to rest. Then telling it is of no use, and dear for
emitters, as commits that notify wait for one another: it gives the lock back, and looks after a pause that grows with
the batch, until a look finds nothing or a pass no more than one row. What events are compared with is the pass itself,
commit included: a slow disk, which makes notifying dear, makes passes slow too.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from relay.outbox.events import Looked
from relay.outbox.keeping import Keeping
from relay.outbox.listening import MOST_ROWS, Listening, Look, Place
from relay.outbox.rounds import Round
from relay.outbox.sessions import FAILURES, Open, Sessions, pause

# While transactions from before the mark are open: from the first pause doubling to the second in so many seconds, and
# then the third.
FIRST_LOOK_SECONDS = 0.001
CLOSE_LOOK_SECONDS = 0.04
CLOSE_SECONDS = 2.0
FAR_LOOK_SECONDS = 0.5
# After a pass of several rows, more are on their way: under a steady load no relay goes to sleep, and nobody notifies.
# So long is the pause for each row of the pass, at least and at most: a slow stream does not wait for it, and of a fast
# one the next pass has more to take.
PAUSE_A_ROW_SECONDS = 0.0001
PAUSE_SECONDS = (0.001, 0.03)
# With the lock kept, the next event is waited for so long until a look tells whether something else has come.
DOZE_SECONDS = 0.01
# So many events in a row come before the relay has come to rest, and then it wants no more to be told. Behind a pass of
# so many the next one finds some, and needs no look before it.
HURRIED_EVENTS = 10
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
        self._lock = Keeping()
        self._hurried = 0  # events in a row that came before it had come to rest

    async def rest(self, wake: asyncio.Event, seconds: float, *, worked: int) -> None:
        """Return when there is something to do, or after `seconds` where only a pass can tell."""
        self._round.passed(worked=worked > 0)
        self._vain = self._vain + 1 if self._early and not worked else 0
        self._early = False
        listening = None if wake.is_set() else await self._sessions.wait(wake, seconds)
        if listening is None or wake.is_set():
            return
        hurry = asyncio.create_task(_hurry(listening, wake))
        try:
            await self._rest(listening, wake, seconds, worked=worked)
        except FAILURES as error:
            await self._lock.lost()
            await self._sessions.lost(error, by_us=wake.is_set())
        finally:
            hurry.cancel()

    def after_failure(self, seconds: float) -> float:
        """As the pace asks for."""
        return seconds

    async def close(self) -> None:
        """End the session, also one that is being made."""
        await self._lock.lost()
        await self._sessions.close()

    async def _rest(self, listening: Listening, wake: asyncio.Event, seconds: float, *, worked: int) -> None:
        ends_at = _now() + seconds
        await self._lock.back()
        told = False
        if worked:
            told = self._lock.mark is not None and await self._doze(listening, wake, worked)
            if self._lock.mark is None and worked > 1 and await self._settle(listening, wake, worked):
                return
        elif self._vain:
            shortest, longest = VAIN_SECONDS
            # A pass that begins at the first row is dear.
            most = seconds if self._called else longest
            await pause(wake, min(most, shortest * 2 ** min(self._vain - 1, 16)))
        if not (told or listening.called or wake.is_set()):
            if self._lock.mark is None and not await self._begin(listening):
                listening.heard = False  # the other one is told as well, and that is enough
                if not listening.called:
                    await pause(wake, seconds)
            else:
                told = await self._sleep(listening, wake, ends_at, believes=worked > 0)
        if self._lock.mark is not None:
            await self._leave(listening, wake, told=told)
        if listening.called:
            self._early, self._called, listening.called = True, True, False
            self._floors.restart()
        elif listening.heard:
            self._floors.rewind()

    async def _doze(self, listening: Listening, wake: asyncio.Event, rows: int) -> bool:
        """Whether it is told of the next event, which is then no reason to look."""
        if not await listening.wait(wake, 0):
            self._hurried = 0
            return await listening.wait(wake, DOZE_SECONDS)
        self._hurried += rows
        if self._hurried < HURRIED_EVENTS:
            return True
        await self._lock.give(listening)
        return False

    async def _settle(self, listening: Listening, wake: asyncio.Event, rows: int) -> bool:
        """Whether more has come by the end of a pause."""
        shortest, longest = PAUSE_SECONDS
        await pause(wake, max(shortest, min(longest, rows * PAUSE_A_ROW_SECONDS)))
        if rows >= HURRIED_EVENTS:
            self._floors.rewind()
            return True
        look = await self._look(listening, 1)
        if look.claimable:
            self._round.looked(look._replace(last_key=self._round.after), _now())
            self._found()
        return bool(look.claimable)

    async def _leave(self, listening: Listening, wake: asyncio.Event, *, told: bool) -> None:
        """Begin a pass, or end."""
        if wake.is_set():
            self._lock.mark = None
            await self._sessions.close()  # which takes the lock with it, also where nobody answers
        elif told and not listening.called:
            # What is told from here on may be about what the pass does not see.
            listening.heard = False
            self._floors.rewind()
            self._lock.keep(listening)
        else:
            # Before all else: nobody shall pay for telling while the relay is awake.
            await self._lock.give(listening)

    async def _begin(self, listening: Listening) -> bool:
        for again in range(1 if self._another_sleeps else TRIES):
            if again:
                await asyncio.sleep(TRY_SECONDS)
            if await self._lock.take(listening, self._most_seconds):
                self._another_sleeps, self._hurried = False, 0
                return True
        self._another_sleeps = True
        return False

    async def _sleep(self, listening: Listening, wake: asyncio.Event, polls_at: float, *, believes: bool) -> bool:
        """Sleep until there is something new to do, or by `polls_at` where only a pass can tell.

        Whoever believes a notification does not look what it is about. Answers whether it is one event after another.
        """
        began = _now()
        restarts_at = max(polls_at, began + self._floors.restarts_in)
        told = 0  # notifications in a row, each soon after the look before it
        while not (listening.called or wake.is_set()):
            # What was told until now is seen by this look.
            listening.heard = False
            looked_at = _now()
            look = await self._look(listening, MOST_ROWS, self._lock.mark)
            now = _now()
            if self._round.looked(look, now):
                self._found()
                return believes
            if not self._round.any_claimable:
                self._observe(Looked())
            ends_at = polls_at if self._round.any_claimable or self._closed()[0] else restarts_at
            if now >= ends_at:
                return False
            took = now - looked_at
            wait = self._next_look(look, took, now - began)
            until = min(ends_at, max(self._round.due_at, now + FIRST_LOOK_SECONDS))
            if await listening.wait(wake, min(until, now + wait) - now):
                if believes:
                    return True
                self._round.news()
                told = told + 1 if _now() - now < VAIN_SECONDS[1] else 1
                await pause(wake, min(until, looked_at + _gap(told, took)) - _now())
            elif self._round.whole:
                self._round.news()
        return False

    def _next_look(self, look: Look, took: float, elapsed: float) -> float:
        """How soon a look, which took so long, is followed by another when nobody tells of anything."""
        if look.settled:
            return self._most_seconds if self._round.whole else took
        self._round.news()
        if self._round.after and elapsed < CLOSE_SECONDS:
            return took
        longest = CLOSE_LOOK_SECONDS if elapsed < CLOSE_SECONDS else FAR_LOOK_SECONDS
        return max(LOOK_SHARE * took, min(FIRST_LOOK_SECONDS + elapsed, longest))

    async def _look(self, listening: Listening, rows: int, mark: str | None = None) -> Look:
        self._sessions.used()
        floors, (topics, types) = self._floors, self._closed()
        place = Place(floors.fresh_safe, floors.ordered_safe, self._round.after, topics, types)
        return await listening.look(place, rows, mark)

    def _found(self) -> None:
        self._early, self._called = True, False
        self._floors.rewind()


def _gap(told: int, took: float) -> float:
    """How soon after the last look, which took so long, the next one follows so many notifications in a row."""
    shortest, longest = VAIN_SECONDS
    # The first one is no storm: it is looked at at once.
    return max(min(longest, shortest * 2 ** min(told - 2, 16)), LOOK_SHARE * took) if told > 1 else 0.0


async def _hurry(listening: Listening, wake: asyncio.Event) -> None:
    """Let no statement hold up a wake-up for long."""
    await wake.wait()
    await asyncio.sleep(HURRY_SECONDS)
    listening.cut()


def _now() -> float:
    return asyncio.get_running_loop().time()
