"""What the pipeline asks of deduplication, whichever mode the consumer chose."""

from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Any, Protocol

from consumers.delivery import Delivery
from consumers.notes import Notebook
from consumers.outcome import Dead, Defer, Done, Invalid, Retry, Sent, Skip
from consumers.received import Received


class Mode(Enum):
    """The user's choice for each consumer."""

    MARK = "mark"
    """`check_and_mark_processed` before the effect: at most once."""
    CLAIM = "claim"
    """A claim before the effect, the completion behind it: once, but for a crash between effect and completion."""
    INBOX = "inbox"
    """Kept in Postgres before it is acted on: effects exactly once, where their own transaction completes them."""
    NONE = "none"
    """Every delivery is acted on: at least once."""


@dataclass(slots=True, eq=False)
class Begun:
    """This delivery may be acted on now, by us alone as far as the mode can tell."""

    event: Received[Any]
    attempt: int
    """From 1. What was refunded does not count."""
    token: Any = None
    """The mode's own."""
    completed: bool = False
    """Whether a transaction of the handler's has completed it, as far as can be known before it is committed."""
    unawaited: bool = False
    """Whether it was to be completed over an asynchronous connection, and nobody has awaited that."""
    notebook: Notebook | None = None
    """Keeps what the handler tells of its work, where the mode keeps a history."""
    deferrals: int = 0
    """How often it was deferred before, where the mode counts that."""


@dataclass(frozen=True, slots=True)
class AlreadyDone:
    """It was acted on, to the end."""


@dataclass(frozen=True, slots=True)
class InProgress:
    """Somebody else acts on it now, or it rests until its next attempt: for so many seconds more, at most."""

    retry_after: float


class UnkeepableError(Exception):
    """The result cannot be kept. Nothing was asked of the store yet: complete it without one."""


# What ends an event; sent, it waits for its provider's word, which only a mode that keeps events is told.
End = Done | Skip | Dead | Invalid | Sent
# Called when the right to act on an event is gone before its handler has ended.
OnLost = Callable[[Begun], None]


class Effects(Protocol):
    """Completes an event in a transaction of its handler's: the effect and the completion are there, or neither."""

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """A transaction on a connection of the process's own."""
        ...

    def transaction_in_thread(self) -> AbstractContextManager[Any]:
        """The same for a plain function."""
        ...

    def complete(self, begun: Begun, connection: Any, result: Any = None) -> Awaitable[None]:
        """Complete it in the connection's transaction; done when this returns, where the connection is synchronous.

        Raises LeaseLostError where it is no longer the caller's: the transaction must not be committed.
        """
        ...

    def fan_out(self, begun: Begun, recipients: Iterable[str], connection: Any = None) -> Awaitable[None]:
        """Have a delivery for each recipient as well, in the connection's transaction or else one of its own.

        Done when this returns, where it was called in a thread. Raises LeaseLostError as `complete` does.
        """
        ...

    async def confirm(self, begun: Begun) -> bool:
        """Whether the transaction that completed it was committed. Raises StoreUnavailableError."""
        ...


class Dedup(Protocol):
    """Every method but `open` and `close` raises StoreUnavailableError where the store is away."""

    mode: Mode
    durable: bool
    """Whether it keeps the events themselves: what rests and what failed is its own business, and nobody else's."""

    async def open(self, on_lost: OnLost, retention: timedelta | None) -> list[str]:
        """Begin; answer with a sentence for each thing that an operator should know at the start.

        `retention` is how long the source keeps a message that nobody acknowledges.
        """
        ...

    async def begin(self, event: Received[Any], delivery: Delivery) -> Begun | AlreadyDone | InProgress:
        """Ask whether the event may be acted on. What is begun ends with exactly one of the two below."""
        ...

    async def complete(self, begun: Begun, end: End) -> None:
        """It is over: the effect is there, or it never will be.

        Raises LeaseLostError where somebody else has the event, and UnkeepableError where the result cannot be kept,
        before anything else.
        """
        ...

    async def release(
        self, begun: Begun, why: Retry | Defer | None = None, *, counted: bool, rest: float = 0.0
    ) -> None:
        """There is no effect. With `counted` it has cost an attempt; for `rest` seconds nobody begins it anew.

        Without a `why` the process stops, or cannot carry out what the handler said.
        """
        ...

    def abandon(self, begun: Begun) -> None:
        """Say nothing more about it, and stop renewing: its lease expires by itself."""
        ...

    def give_up(self) -> None:
        """Wait for the store no longer: whoever waits is told that it is away. What was asked may yet be done."""
        ...

    async def close(self) -> None:
        """Stop renewing leases; no handler runs any more, but for those that had to be abandoned."""
        ...
