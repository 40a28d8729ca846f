"""What an older revision of a handler has ended is handled again where its author says so, once over all processes.

A rise is noticed at a start. One process walks over what has failed, by its index, or over all that has ended, by the
primary key, page after page, twice: what processes of the release before end beside the new ones is found by the second
round. A revision that falls changes nothing, but is noted: where it rises again, that is a rise.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from consumers.clock import Clock
from consumers.events import RevisionRequeued
from consumers.handlers import EACH, Handler, Handlers, Meant
from consumers.inbox.checkpoints import Checkpoint, Checkpoints
from consumers.inbox.session import Session
from relay.kernel.backoff import Delay
from relay.kernel.observe import Observe
from relay.kernel.runner import Budget, Next, Pace, Report
from relay.postgres.statements import numbers

PAGE: Final = 2_000
BATCH: Final = 500
PAUSES: Final = 4
ROUNDS: Final = 2
# A deploy has ended by then: nothing of the release before runs any more.
DEPLOY_SECONDS: Final = 600.0
SILENCE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a walk is for."""

    handler: Handler
    suffix: str = ""
    """What is stored behind the event types that it is for."""

    @property
    def name(self) -> str:
        """Of its checkpoint: one for each registration, whatever its revision."""
        version = "any" if self.handler.version is None else self.handler.version
        return f"revision:{self.handler.pattern}{self.suffix}:{version}"

    @property
    def event_type(self) -> str:
        """The type under which its deliveries are stored, or the beginning of all of them."""
        pattern = self.handler.pattern
        return pattern.removesuffix("*") if pattern.endswith("*") else pattern + self.suffix

    @property
    def start(self) -> dict[str, Any]:
        """The position that it begins with."""
        handler = self.handler
        return {"revision": handler.revision, "on_rise": handler.on_rise, "round": 1, "after": 0, "newest": None}

    @property
    def also_done(self) -> bool:
        """Whether what was done is meant, too."""
        return self.handler.on_rise == "all"


class Revising:
    """The runner that has them handled again."""

    name = "inbox_revisions"
    pace = Pace(
        busy=0.0, idle=Delay(first=30.0, most=60.0, jitter=5.0), error=Delay(first=30.0, most=300.0, jitter=5.0)
    )

    def __init__(  # noqa: PLR0913 -- each by its name
        self,
        session: Session,
        handlers: Handlers,
        *,
        consumer: str,
        owner: str,
        clock: Clock,
        observe: Observe,
        page: int = PAGE,
    ) -> None:
        self._session = session
        self._checkpoints = Checkpoints(session, consumer)
        self._handlers = handlers
        self._consumer = consumer
        self._owner = owner
        self._clock = clock
        self._observe = observe
        self._page = page
        self._unseen = [
            *(Meaning(handler) for handler in handlers.own()),
            *(Meaning(handler, EACH) for handler in (handlers.each.own() if handlers.each else ())),
        ]
        self._left: list[Meaning] = []

    async def run_once(self, budget: Budget) -> Report:
        """See what has risen, and walk for it, unless another process does."""
        requeued = 0
        try:
            while self._unseen:
                if await self._risen(self._unseen[0]):
                    self._left.append(self._unseen[0])
                del self._unseen[0]
            for meaning in list(self._left):
                requeued += await self._walk(meaning, budget)
        finally:
            await self._session.rest()
        return Report(updated=requeued, next=Next.AGAIN if self._left and budget.spent(0) else Next.IDLE)

    async def close(self) -> None:
        """The session is ended by whoever has made it."""

    async def _risen(self, meaning: Meaning) -> bool:
        """Whether there is something to walk for; a rise, or a fall, is written down."""
        handler = meaning.handler
        while True:
            found = await self._checkpoints.read(meaning.name)
            if found is None:
                if handler.revision == 1 or handler.on_rise == "nothing":
                    return False
                wrote, risen = await self._checkpoints.begin(meaning.name, meaning.start), True
            elif found.position["revision"] > handler.revision:
                fallen = {**found.position, "fell": True}
                wrote, risen = await self._checkpoints.move(found, fallen, finished=found.finished), False
            elif handler.on_rise == "nothing":
                return False
            elif _is_of(found.position, meaning) and not found.position.get("fell"):
                return not found.finished
            else:
                wrote, risen = await self._checkpoints.move(found, meaning.start), True
            if wrote is not None:
                return risen

    async def _walk(self, meaning: Meaning, budget: Budget) -> int:
        """Go on with it for as long as the budget lasts; how many are handled again."""
        began, requeued = self._clock.monotonic(), 0
        walk = await self._take(meaning)
        while walk is not None and not walk.finished and not budget.spent(0):
            page_began = self._clock.monotonic()
            walk, count = await self._step(meaning, walk)
            requeued += count
            if walk is not None and walk.position["newest"] is None:
                break  # the second round is not due yet
            await self._clock.wait(budget.stopping, PAUSES * (self._clock.monotonic() - page_began))
        if walk is not None and walk.finished:
            self._left.remove(meaning)
        if requeued:
            handler, took = meaning.handler, self._clock.monotonic() - began
            self._observe(RevisionRequeued(self._consumer, handler.pattern, handler.revision, requeued, took))
        return requeued

    async def _take(self, meaning: Meaning) -> Checkpoint | None:
        """The walk, if it is this process's now."""
        found = await self._checkpoints.read(meaning.name)
        if found is None or found.finished or not _is_of(found.position, meaning):
            self._left.remove(meaning)
            return None
        position = found.position
        if position.get("by") not in (None, self._owner) and found.age < SILENCE_SECONDS:
            return None
        if position["newest"] is None:
            if position["round"] > 1 and found.age < DEPLOY_SECONDS:
                return None
            ((_, newest),) = await self._session.ask("now", {})
            position["newest"] = int(newest)
        return await self._checkpoints.move(found, {**position, "by": self._owner})

    async def _step(self, meaning: Meaning, walk: Checkpoint) -> tuple[Checkpoint | None, int]:
        """A page of it; no walk any more where another process goes on with it."""
        position = walk.position
        last, ids = await self._found(meaning, position)
        requeued = 0
        for batch, after in _batches(ids, last):
            reached = {**position, "after": after}
            finished = False
            if after is None:
                reached, finished = _next_round(position)
            rows = await self._session.ask(
                "requeue",
                {
                    **self._checkpoints.said(walk, reached, finished=finished),
                    "done": meaning.also_done,
                    "revision": meaning.handler.revision,
                    "ids": numbers(batch),
                },
            )
            if not rows:
                return None, requeued
            walk = Checkpoint(walk.name, rows[0][0], finished)
            requeued += int(rows[0][1])
        return walk, requeued

    async def _found(self, meaning: Meaning, position: dict[str, Any]) -> tuple[int | None, list[int]]:
        """Where the page ended, None at the end of all, and what is to be handled again of it."""
        pattern = meaning.handler.pattern
        rows = await self._session.ask(
            "risen_ended" if meaning.also_done else "risen_failed",
            {
                "revision": meaning.handler.revision,
                "consumer": self._consumer,
                "exact": not pattern.endswith("*"),
                "event_type": meaning.event_type,
                "after": position["after"],
                "newest": position["newest"],
                "rows": self._page,
            },
        )
        read, last = int(rows[0][0]), rows[0][1]
        ended = read < self._page or int(last) >= position["newest"]
        return (None if ended else int(last)), sorted(self._ours(meaning, rows))

    def _ours(self, meaning: Meaning, rows: Iterable[tuple[Any, ...]]) -> Iterator[int]:
        """A type may match several registrations, of which one is the event's."""
        for _, _, id_, event_type, version in rows:
            if id_ is None:
                continue
            match self._handlers.resolve_stored(event_type, int(version)):
                case Meant(handler) if handler is meaning.handler:
                    yield int(id_)
                case _:
                    pass


def _is_of(position: dict[str, Any], meaning: Meaning) -> bool:
    handler = meaning.handler
    return (position["revision"], position["on_rise"]) == (handler.revision, handler.on_rise)


def _next_round(position: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """What is written behind the last row, and whether that was the last round."""
    if position["round"] >= ROUNDS:
        return position, True
    return {**position, "round": position["round"] + 1, "after": 0, "newest": None, "by": None}, False


def _batches(ids: Sequence[int], last: int | None) -> Iterator[tuple[Sequence[int], int | None]]:
    """What is written at once, and how far that comes."""
    for start in range(BATCH, len(ids), BATCH):
        yield ids[start - BATCH : start], ids[start - 1]
    yield ids[max(0, (len(ids) - 1) // BATCH * BATCH) :], last
