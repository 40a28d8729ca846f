"""What `emit` needs of a library: to know its connections, and to run one statement in their transaction."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from relay.errors import AutocommitError


@dataclass(frozen=True, slots=True)
class Call:
    """A function of ours that takes one JSON document, in the words of each kind of parameter.

    It answers with one text a row, which no codec, loader or row factory of the service's own has a hand in. The
    parameter has a line to itself, because errors quote the line that they are about.
    """

    beginning: str
    unkept: str
    """What would be wrong where what it does is committed on its own."""
    end: str = ")"

    @property
    def format(self) -> str:
        """With a parameter as psycopg writes it."""
        return f"{self.beginning}%s::jsonb{self.end}"

    @property
    def numbered(self) -> str:
        """With a parameter as Postgres writes it."""
        return f"{self.beginning}$1::text::jsonb{self.end}"

    @property
    def named(self) -> str:
        """With a parameter as SQLAlchemy writes it."""
        return f"{self.beginning}cast(:given as jsonb){self.end}"

    def autocommits(self, way: str) -> AutocommitError:
        """Say that it would be committed on its own, and which way there is to have a transaction."""
        return AutocommitError(f"the connection is in autocommit mode and no transaction is open: {self.unkept}; {way}")


EMIT: Final = Call(
    "select concat_ws(' ', event_id, sequence, inserted) from outbox_emit(\n",
    "the event would be promised whether or not the change that it announces is made",
)


class SyncConnection(Protocol):
    """What all synchronous connections and sessions have, and neither cursors nor engines nor asynchronous ones do."""

    def commit(self) -> None:
        """Commit the transaction."""

    def rollback(self) -> None:
        """Roll the transaction back."""


class AwaitedConnection(Protocol):
    """What the asynchronous connections and sessions of psycopg and SQLAlchemy have."""

    def commit(self) -> Awaitable[None]:
        """Commit the transaction."""

    def rollback(self) -> Awaitable[None]:
        """Roll the transaction back."""


class AsyncpgConnection(Protocol):
    """What the connections of asyncpg have, and its pools do not."""

    def is_in_transaction(self) -> bool:
        """Whether a transaction is open."""

    def is_closed(self) -> bool:
        """Whether the connection is closed."""


AsyncConnection = AwaitedConnection | AsyncpgConnection


@dataclass(frozen=True, slots=True)
class SyncAdapter:
    """How events are stored, and read, through one kind of connection.

    `store` refuses what would commit on its own, makes the call, and answers with its texts. `texts` runs any
    other statement that has no parameters and answers with one text a row. `awaited` is what to do with such a
    connection in asynchronous code.
    """

    store: Callable[[Any, str, Call], list[str | bytes]]
    texts: Callable[[Any, str], list[str | bytes]]
    awaited: str = "call emit"


@dataclass(frozen=True, slots=True)
class AsyncAdapter:
    """The same of one kind of asynchronous connection."""

    store: Callable[[Any, str, Call], Awaitable[list[str | bytes]]]
    texts: Callable[[Any, str], Awaitable[list[str | bytes]]]


Adapter = SyncAdapter | AsyncAdapter


@dataclass(frozen=True, slots=True)
class Library:
    """One library: which adapter a type of its connections has, and what to do with what is taken for a connection."""

    adapter_of: Callable[[type], Adapter | None]
    remedy: Callable[[object], str | None]
