"""The slots of a job: which is due, and taking it before anybody else does."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Final
from uuid import uuid4

import psycopg

from relay.postgres.session import Session
from relay.upkeep.database_clock import DatabaseClock, moment
from relay.upkeep.jobs import Job

# One answer tells the time, the next takes the slot. Where that was over by then, as after a machine's sleep, the last
# takes what is due, however slow the answers are.
_TRIES: Final = 3
# A slot that is over is still taken for so long after its successor has come.
_LATE: Final = timedelta(seconds=60)
_NEVER_OVER: Final = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class _Answer:
    taken: bool
    now: datetime
    last: datetime | None
    by: str | None  # who took the last


class Slots:
    """Those of one job, over the session that the jobs of a process share."""

    def __init__(self, job: Job, session: Session, clock: DatabaseClock) -> None:
        self._job = job
        self._session = session
        self._clock = clock
        self._last: datetime | None = None  # the last that somebody took, as far as it is known
        self._used: datetime | None = None  # the last that was ours
        self._by = uuid4().hex

    async def take(self) -> datetime | None:
        """The slot that is now ours, or None where none is due or others were faster. Raises what the session does.

        It is ours until it is used, or a later one is taken: also where the answer that said so was lost.
        """
        for tries_left in reversed(range(_TRIES)):
            slot = self._latest(self._clock.now())
            answer = await self._ask(slot, self._over(slot) if tries_left else _NEVER_OVER)
            if answer.taken:
                self._last = slot
                return slot
            self._last = answer.last
            due = self._latest(answer.now)
            if due is None or (answer.last is not None and due <= answer.last):
                return answer.last if answer.by == self._by and answer.last != self._used else None
        return None

    async def has_schema(self, schema: str) -> bool:
        """Whether there is one of this name, as far as the database tells."""
        try:
            ((there,),) = await self._session.ask("schema_there", {"schema": schema})
        except psycopg.Error:  # whoever asks has an error to tell already
            return True
        return bool(there)

    def use(self, slot: datetime) -> None:
        """Note that something came of a slot, were it that it is skipped."""
        self._used = slot

    def due_in(self) -> float | None:
        """How many seconds it is to the next slot, zero or less where it has come; None where that is not known."""
        now = self._clock.now()
        if now is None:
            return None
        due = self._job.schedule.next_after(self._last) if self._last else now
        return inf if due is None else (due - now).total_seconds()

    def next_in(self) -> float | None:
        """The same of the slot after that which has come."""
        now = self._clock.now()
        due = None if now is None else self._job.schedule.next_after(now)
        return None if now is None or due is None else (due - now).total_seconds()

    def _latest(self, now: datetime | None) -> datetime | None:
        return None if now is None else self._job.schedule.latest(now)

    def _over(self, slot: datetime | None) -> datetime:
        following = None if slot is None else self._job.schedule.next_after(slot)
        return _NEVER_OVER if following is None else following + _LATE

    async def _ask(self, slot: datetime | None, until: datetime) -> _Answer:
        values = {"name": self._job.name, "slot": slot, "until": until, "at_once": self._job.schedule.at_once}
        ((taken, now, last, by),) = await self._session.ask("slot_take", {**values, "by": self._by})
        answer = _Answer(taken, moment(now), None if last is None else moment(last), by)
        self._clock.heard(answer.now)
        return answer


class SlotNow(Slots):
    """The same where a job is to run, due or not: its slot is this moment, and none before it runs any more."""

    async def take(self) -> datetime | None:
        """The slot that is now ours, or None where others were faster again and again. Raises what the session does."""
        answer = await self._ask(None, _NEVER_OVER)
        for _ in range(_TRIES):
            slot = answer.now
            answer = await self._ask(slot, _NEVER_OVER)
            if answer.taken:
                self._last = slot
                return slot
        return None
