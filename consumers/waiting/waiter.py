"""One who waits: for which delivery, when it is looked for next, and what has come of it."""

import asyncio
import math
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from consumers.errors import UnknownDeliveryError
from consumers.inbox.rows import Awaited
from consumers.waiting.answers import Answer, Failed, Pending, Ready
from consumers.waiting.enqueue import Enqueued
from idempotency import InvalidKeyError, StoreUnavailableError
from idempotency.keys import identity
from relay.envelope import NAME_BYTES

# Between two looks: doubling, at the same moments for all that wait for as long, so that they go in one statement.
FIRST_SECONDS: Final = 0.02
MOST_SECONDS: Final = 1.0
# What is to be tried again much later is not asked for every second.
MOST_RETRY_AFTER: Final = 30.0
_MOST_ID: Final = 2**63 - 1
_SUCCESSFUL: Final = frozenset({"ok", "skipped"})

Target = int | tuple[str, UUID]
Delivery = Enqueued | int | tuple[str, UUID | str]


@dataclass(slots=True, eq=False)
class Waiter:
    """Its events are set once and for all."""

    target: Target
    due: float
    retry_after: float
    every: float = FIRST_SECONDS
    id: int | None = None
    answer: Ready | Failed | Exception | None = None
    fault: StoreUnavailableError | None = None
    """Why the last look did not succeed."""
    found_pending: bool = False
    looked: asyncio.Event = field(default_factory=asyncio.Event)
    """A look was made, with or without success."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def said(self) -> Answer:
        """What has come of it until now. Raises what has prevented an answer."""
        match self.answer:
            case Ready() | Failed():
                return self.answer
            case None if self.found_pending:
                return Pending(self.retry_after)
            case None:
                raise self.fault or StoreUnavailableError("the inbox was not reached: it has not answered in time")
            case error:
                raise error

    def look_later(self, now: float) -> None:
        """Look again after a while, which doubles."""
        self.due = (now // self.every + 1) * self.every
        self.every = min(self.every * 2, MOST_SECONDS)

    def see(self, row: Awaited | None, retry_after: float) -> None:
        """Take what a look has found."""
        self.fault = None
        match row:
            case None if isinstance(self.target, int):
                self.end(
                    UnknownDeliveryError(
                        f"the inbox has no delivery {self.target}: its transaction is not committed yet or was rolled "
                        "back, or it was removed; wait after the commit"
                    )
                )
                return
            case None:  # an event that is still on its way
                self.retry_after = retry_after
            case Awaited(state="done", outcome=outcome) if outcome in _SUCCESSFUL:
                self.end(Ready(row.result))
                return
            case Awaited(state="done" | "failed"):
                self.end(Failed(row.error_code or row.outcome.upper(), row.error))
                return
            case Awaited():
                self.retry_after = min(max(row.due_in, retry_after), max(MOST_RETRY_AFTER, retry_after))
        self.found_pending = True
        self.looked.set()

    def fail(self, fault: StoreUnavailableError) -> None:
        """A look did not succeed; others will be made."""
        self.fault = fault
        self.looked.set()

    def end(self, answer: Ready | Failed | Exception) -> None:
        """There is nothing more to wait for."""
        self.answer = answer
        self.looked.set()
        self.ended.set()

    def break_off(self) -> None:
        """Answer with what is known: nobody looks any more."""
        self.found_pending = True
        self.looked.set()
        self.ended.set()


def target_of(delivery: Delivery) -> Target:
    """Which delivery is meant. Raises ValueError or TypeError for what names none."""
    match delivery:
        case Enqueued(delivery=number):
            return number
        case bool():
            pass
        case int() if 1 <= delivery <= _MOST_ID:
            return delivery
        case int():
            raise ValueError(f"{delivery!r:.40} is no id of a delivery; give what enqueue has answered")
        case (str() as consumer, event_id):
            if not _names_a_consumer(consumer):
                raise ValueError(f"{consumer!r:.80} is no name of a consumer")
            try:
                return consumer, identity(event_id)
            except InvalidKeyError as error:
                raise ValueError(str(error)) from None
        case _:
            pass
    raise TypeError(f"expected what enqueue answers, an id, or (consumer, event_id), not {type(delivery).__name__}")


def seconds_of(seconds: float) -> float:
    """A time to wait. Raises ValueError."""
    if type(seconds) not in {int, float} or not 0 <= seconds < math.inf:
        raise ValueError(f"seconds is {seconds!r:.40}; give zero or more")
    return float(seconds)


def _names_a_consumer(text: str) -> bool:
    """Whether it can be asked for: what fails a statement would fail it for all that wait."""
    try:
        return 1 <= len(text.encode()) <= NAME_BYTES and "\0" not in text
    except UnicodeEncodeError:
        return False
