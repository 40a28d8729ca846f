"""What is told of deliveries, and what became of those that somebody acted on."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, NamedTuple, assert_never

from consumers.inbox.operate.choice import State

# Of what is left alone so many are named.
_MOST_NAMED = 5


class Listed(NamedTuple):
    """What is listed of a delivery; never its envelope."""

    id: int
    consumer: str
    event_id: str
    recipient: str
    event_type: str
    ordering_key: str | None
    state: str
    outcome: str | None
    attempts: int
    code: str | None
    error: str | None
    age_seconds: float
    due_in_seconds: float | None
    """Of what waits, or waits to be confirmed."""
    created_at: str
    available_at: str
    finished_at: str | None


@dataclass(frozen=True, slots=True)
class Page:
    """Which part of what is chosen, and how much of it at once."""

    rows: int
    newest: bool = False
    """The newest first; or else the oldest."""
    after: int | None = None
    """The id at which the part before ended."""


class Group(NamedTuple):
    """What deliveries are counted by."""

    consumer: str
    event_type: str
    state: str
    code: str


class Entry(NamedTuple):
    """What happened to a delivery at some time."""

    at: str
    what: str
    detail: dict[str, Any]


class Start(NamedTuple):
    """The database's time as a command begins, and as whom it is connected."""

    now: datetime
    role: str


class Operator(NamedTuple):
    """Who acts, and why."""

    by: str
    why: str | None


class Action(Enum):
    """What an operator can do to a delivery."""

    RETRY = "retry"
    DISCARD = "discard"

    def fits(self, state: State, *, done: bool) -> bool:
        """Whether it is done to one in this state; `done` is whether what is done may be done again."""
        match self:
            case Action.RETRY:
                fine = {State.FAILED, State.DISCARDED, State.SENT}
                return state in (fine | {State.DONE} if done else fine)
            case Action.DISCARD:
                return state in {State.FAILED, State.PENDING}
            case _:
                assert_never(self)


# Why one was left alone, beside the states that an action does not fit.
HELD = "held"
CHANGED = "changed"
GONE = "gone"


@dataclass(slots=True)
class Left:
    """Deliveries that were left alone for one reason."""

    count: int = 0
    ids: list[int] = field(default_factory=list)
    """The first of them."""


@dataclass(slots=True)
class Tally:
    """What became of the deliveries that were chosen; of a dry run, what would."""

    acted: int = 0
    were: Counter[str] = field(default_factory=Counter)
    """The states that this ended."""
    keyed: int = 0
    """Of those acted on: the ones with an ordering key."""
    left: dict[str, Left] = field(default_factory=dict)

    def act(self, rows: Sequence[Listed]) -> None:
        """Count those that were acted on."""
        self.acted += len(rows)
        self.were.update(row.state for row in rows)
        self.keyed += sum(row.ordering_key is not None for row in rows)

    def leave(self, row: Listed, why: str) -> None:
        """Count one that was left alone."""
        left = self.left.setdefault(why, Left())
        left.count += 1
        if len(left.ids) < _MOST_NAMED:
            left.ids.append(row.id)
