"""Rebuilds deliveries that are missing, page after page: each is there with the checkpoint behind it, or neither is."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, NoReturn

from consumers.inbox.arriving import said_of
from consumers.inbox.checkpoints import Checkpoint, Checkpoints
from consumers.inbox.cleaning import NAME as CLEANING
from consumers.inbox.origins import Origin, Page
from consumers.inbox.rows import Arrival
from consumers.inbox.session import UNKEPT, Session
from consumers.inbox.table import MOST_ROWS
from relay.errors import OperateError
from relay.postgres.statements import texts
from relay.postgres.wire import Row

Progress = Callable[[str, int], None]
# What was created about when the cleaning looks may be gone by the time that it is stored again.
_MARGIN_SECONDS: Final = 60.0
_MOST_BYTES: Final = 4_000_000


@dataclass(slots=True, kw_only=True)
class Tally:
    """What was found, since the reconciliation began, whichever process did it."""

    seen: int = 0
    """Events that there should be."""
    missing: int = 0
    stored: int = 0
    refused: int = 0
    """Missing ones that cannot be stored."""
    passed: dict[str, int] = field(default_factory=dict)
    """Events that were left out, by why."""
    resumed: bool = False

    def add(self, page: Page) -> None:
        """What a page tells, before anything of it is looked for."""
        self.seen += page.seen
        self.refused += len(page.refused)
        self.missing += len(page.refused)
        for why, count in page.passed.items():
            self.passed[why] = self.passed.get(why, 0) + count

    def kept(self) -> dict[str, Any]:
        """What stands in the checkpoint."""
        return {
            "seen": self.seen,
            "missing": self.missing,
            "stored": self.stored,
            "refused": self.refused,
            "passed": self.passed,
            "resumed": self.resumed,
        }


class Reconciliation:
    """One consumer's, with one origin. A second one beside it stops as soon as the two meet."""

    def __init__(  # noqa: PLR0913 -- each by its name
        self,
        session: Session,
        origin: Origin,
        *,
        consumer: str,
        retention: timedelta | None,
        page: int,
        progress: Progress,
        complain: Callable[[str], None],
    ) -> None:
        self._session = session
        self._checkpoints = Checkpoints(session, consumer)
        self._origin = origin
        self._consumer = consumer
        self._retention = retention
        self._page = page
        self._progress = progress
        self._complain = complain
        self._name = f"reconcile:{origin.name}"
        self._sees_all = True

    async def run(self, *, restart: bool) -> Tally:
        """Store what is missing, from where the last call ended unless that was at the end."""
        await self._tell_of_the_origin()
        walk = await self._start(restart=restart)
        at = walk.position["at"]
        while not walk.finished:
            tally = _tally(walk)
            page = await self._next(at, tally)
            walk = await self._store(walk, page, tally)
            at = page.then
        return _tally(walk)

    async def plan(self) -> Tally:
        """Count what is missing, from the first event on, and store nothing."""
        await self._tell_of_the_origin()
        tally, position = Tally(), None
        while True:
            page = await self._next(position, tally)
            for part in _parts(page.arrivals):
                ids = texts(sorted({str(each.event_id) for each in part}))
                tally.missing += len(await self._session.ask("absent", {"consumer": self._consumer, "event_ids": ids}))
            if page.then is None:
                return tally
            position = page.then

    async def _tell_of_the_origin(self) -> None:
        sentences = await self._origin.open()
        # The next call goes on behind events alone that were all there to be seen.
        self._sees_all = not sentences
        for sentence in sentences:
            self._complain(sentence)

    async def _start(self, *, restart: bool) -> Checkpoint:
        found = await self._checkpoints.read(self._name)
        if found is None:
            begun = await self._checkpoints.begin(self._name, _position(None, Tally()))
        elif restart or found.finished or found.position["at"] is None:
            begun = await self._checkpoints.move(found, _position(None, Tally()))
        else:
            tally = _tally(found)
            tally.resumed = True
            begun = await self._checkpoints.move(found, _position(found.position["at"], tally))
        return begun or self._met()

    async def _next(self, position: Any, tally: Tally) -> Page:
        page = await self._origin.page(position, self._page, await self._floor())
        tally.add(page)
        for sentence in page.refused:
            self._complain(f"not stored: {sentence}")
        self._progress("events seen", tally.seen + sum(tally.passed.values()))
        return page

    async def _floor(self) -> float | None:
        retention = None if self._retention is None else self._retention.total_seconds()
        ((until,),) = await self._session.ask(
            "cleaned", {"consumer": self._consumer, "name": CLEANING, "retention": retention}
        )
        return None if until is None else float(until) + _MARGIN_SECONDS

    async def _store(self, walk: Checkpoint, page: Page, tally: Tally) -> Checkpoint:
        arrivals = _sorted(page.arrivals)
        finished = page.then is None
        try:
            *_, moved = await self._session.ask_together(
                *[("receive", said_of(part, self._consumer)) for part in _parts(arrivals)],
                ("checkpoint_stored", self._counted(walk, page, tally, arrivals)),
            )
        except UNKEPT:
            # One of them is nothing that Postgres keeps. The position follows when all others are stored.
            await self._store_apart(arrivals, tally)
            moved = await self._follow(walk, page, tally)
        if not moved:
            self._met()
        return Checkpoint(walk.name, moved[0][0], finished)

    def _counted(self, walk: Checkpoint, page: Page, tally: Tally, arrivals: Sequence[Arrival]) -> dict[str, object]:
        try:
            at = page.then if self._sees_all else None
            said = self._checkpoints.said(walk, _position(at, tally), finished=page.then is None)
        except (TypeError, ValueError) as error:
            raise _unkeepable_position(error) from error
        return {
            **said,
            "stored": tally.stored,
            "missing": tally.missing,
            "event_ids": texts([str(each.event_id) for each in arrivals]),
        }

    async def _follow(self, walk: Checkpoint, page: Page, tally: Tally) -> list[Row]:
        try:
            return await self._session.ask("checkpoint_stored", self._counted(walk, page, tally, []))
        except UNKEPT as error:
            raise _unkeepable_position(error) from error

    async def _store_apart(self, arrivals: Sequence[Arrival], tally: Tally) -> None:
        for part in _parts(arrivals):
            await self._store_part(part, tally)

    async def _store_part(self, part: Sequence[Arrival], tally: Tally) -> None:
        try:
            new = await self._session.ask("receive", said_of(part, self._consumer))
        except UNKEPT as error:
            if len(part) == 1:
                tally.refused += 1
                tally.missing += 1
                why = error.diag.message_primary or type(error).__name__
                self._complain(f"not stored: event {part[0].event_id}: the inbox cannot store it: {why}")
                return
            half = len(part) // 2
            await self._store_part(part[:half], tally)
            await self._store_part(part[half:], tally)
        else:
            tally.stored += len(new)
            tally.missing += len(new)

    def _met(self) -> NoReturn:
        raise OperateError(
            f"another call reconciles {self._consumer!r} from the same origin now, and goes on; nothing is lost, and "
            "what both have stored is stored once"
        )


def _position(at: Any, tally: Tally) -> dict[str, Any]:
    return {"at": at, **tally.kept()}


def _tally(walk: Checkpoint) -> Tally:
    return Tally(**{name: value for name, value in walk.position.items() if name != "at"})


def _sorted(arrivals: Sequence[Arrival]) -> list[Arrival]:
    """Each once, in the order in which no two that store the same events deadlock."""
    return sorted({each.event_id: each for each in reversed(arrivals)}.values(), key=lambda each: each.event_id.int)


def _parts(arrivals: Sequence[Arrival]) -> Iterator[Sequence[Arrival]]:
    part: list[Arrival] = []
    size = 0
    for arrival in arrivals:
        part.append(arrival)
        size += len(arrival.body)
        if len(part) == MOST_ROWS or size >= _MOST_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


def _unkeepable_position(error: Exception) -> OperateError:
    return OperateError(
        f"the consumer's own function for reconcile answered with a position that cannot be kept as JSON "
        f"({type(error).__name__}); numbers, texts, lists and dictionaries of them can"
    )
