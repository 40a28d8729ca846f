"""A session that hears of new events: proved to hear, and then the relay's own for as long as it lasts."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Self, TypeVar
from uuid import uuid4

import psycopg
from psycopg import sql
from psycopg.rows import args_row

from relay.errors import ConfigurationError
from relay.outbox.statements import statement
from relay.postgres.answering import answered, cut
from relay.postgres.statements import search_path

Connect = Callable[[], Awaitable[psycopg.AsyncConnection[Any]]]

T = TypeVar("T")

# So long may any statement of the session take, by the server's clock and by ours: one that takes longer has lost its
# server, and is cut off.
SERVER_SECONDS = 2.5
STATEMENT_SECONDS = 3.0
# A session that is silent for so much longer than it may wait is ended by the server, and with it the lock.
GRACE_SECONDS = 15.0
# So long does a notification take at most, where it comes at all.
PROOF_SECONDS = 3.0
# A look visits no more ordering keys than this, and answers with no more rows of each kind;
MOST_KEYS = 1_000
MOST_ROWS = 1_000
# where topics take nothing, it looks through so many for rows of others.
REACH_ROWS = 10_000
# What `outbox_wake` says; the trigger says nothing, and a proof its token.
_CALL = "wake"


class DeafError(ConfigurationError):
    """The connection takes LISTEN and hears nothing: there is a pooler between, or it leads to another database."""


class Place(NamedTuple):
    """Where to look."""

    fresh_safe: int
    ordered_safe: int
    after: str = ""  # the ordering key behind which to go on
    open_topics: Sequence[str] = ()  # that take nothing now
    open_types: Sequence[str] = ()  # the types of events that go there


class Look(NamedTuple):
    """What one look found."""

    relation: int  # the table's oid
    claimable: Sequence[int]  # the ids of rows that a claim would take, but for locks
    due_in_seconds: float | None  # when the next row is due
    settled: bool  # every transaction from before the mark has ended
    last_key: str | None  # behind which the next look goes on; None where the last key was visited


class Listening:
    """The session. It holds an advisory lock while its relay sleeps, which is what makes emitters notify."""

    def __init__(self, connection: psycopg.AsyncConnection[Any], relation: int, skew: float = 0.0) -> None:
        self.heard = False
        """Something was stored since this was last set to false."""
        self.called = False
        """A pass is asked for since this was last set to false, whatever can be seen: rows were made due by hand."""
        self._connection = connection
        self._relation = relation
        self._skew = skew
        self._tokens: set[str] = set()
        self._changed = asyncio.Event()
        connection.add_notify_handler(self._notified)

    @classmethod
    async def open(cls, listener: Connect, outbox: Connect, schema: str, skew: float = 0.0) -> Self:
        """Connect, and prove over a second connection that notifications arrive.

        Raises DeafError where none does, and ConfigurationError where there is no outbox.
        """
        connection = await listener()
        try:
            return await cls._proved(connection, outbox, schema, skew)
        except BaseException:  # a cancellation, too, leaves no session behind
            await connection.close()
            raise

    @classmethod
    async def _proved(cls, connection: psycopg.AsyncConnection[Any], outbox: Connect, schema: str, skew: float) -> Self:
        name = {"relation": sql.Identifier(schema, "outbox_events").as_string(None)}
        cursor = await _answered(connection, connection.execute(statement("listen_start"), name))
        found = await cursor.fetchone()
        if found is None:
            raise ConfigurationError(
                f"database {connection.info.dbname!r}, to which the relay listens, has no outbox in schema "
                f"{schema!r}; RELAY_LISTEN_URL must lead to the database of DATABASE_URL"
            )
        relation, channel = found
        listening = cls(connection, relation, skew)
        await _answered(connection, connection.execute(sql.SQL("listen {}").format(sql.Identifier(channel))))
        token = uuid4().hex
        listening._tokens.add(token)
        other = await outbox()
        try:
            await _answered(other, other.execute(statement("listen_prove"), {**name, "token": token}))
        finally:
            await other.close()
        await listening._prove(token)
        values = {"search_path": search_path(schema), "statement_ms": _milliseconds(SERVER_SECONDS)}
        await listening._execute("listen_enter", values)
        return listening

    @property
    def database(self) -> str:
        """The place and the name of the database, without the user."""
        info = self._connection.info
        return f"{info.host}:{info.port}/{info.dbname}"

    async def begin(self, seconds: float) -> str | None:
        """Have emitters notify from here on; return an xid above theirs, or None while another relay has them do so.

        Nobody goes on notifying for a relay that hangs: its next statement follows after `seconds` at most.
        """
        values = {"relation": self._relation, "idle_ms": _milliseconds(seconds + GRACE_SECONDS)}
        row = await self._execute("sleep_begin", values)
        return row[0] if row else None

    async def end(self) -> None:
        """Have nobody notify any more. Raises OperationalError where this session is not the one that began."""
        released, _ = await self._execute("sleep_end", {"relation": self._relation})
        if not released:
            raise psycopg.OperationalError("the lock was not this session's: a pooler is in between")

    async def look(self, place: Place, rows: int, mark: str | None = None) -> Look:
        """Look whether there is something to do. Raises OperationalError where the table is another one by now."""
        values = {
            **place._asdict(),
            "open_topics": list(place.open_topics),
            "open_types": list(place.open_types),
            "keys": MOST_KEYS,
            "rows": rows,
            "reach": REACH_ROWS if place.open_topics else rows,
            "mark": mark,
            "skew": self._skew,
        }
        cursor = self._connection.cursor(row_factory=args_row(Look))
        await _answered(self._connection, cursor.execute(statement("look"), values))
        (look,) = await cursor.fetchall()
        if look.relation != self._relation:
            raise psycopg.OperationalError("the table outbox_events is another one than that which was listened to")
        return look

    async def wait(self, wake: asyncio.Event, seconds: float) -> bool:
        """Return when anything arrives, `wake` is set, or the time is over; say whether something has arrived.

        Raises when the connection is lost.
        """
        self._changed.clear()
        if self._read() or self.heard or self.called:
            return True
        if wake.is_set() or seconds <= 0:
            return False
        loop = asyncio.get_running_loop()
        socket = self._connection.fileno()
        loop.add_reader(socket, self._changed.set)
        waking = asyncio.create_task(wake.wait())
        waking.add_done_callback(self._woken)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._changed.wait()
        finally:
            loop.remove_reader(socket)
            # Its end, which comes later, is no news to the next one who waits.
            waking.remove_done_callback(self._woken)
            waking.cancel()
        return self._read()

    def cut(self) -> None:
        """End whatever runs or waits on the connection: it is lost."""
        cut(self._connection)

    async def close(self) -> None:
        """End the session, and with it the lock."""
        await self._connection.close()

    async def _prove(self, token: str) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PROOF_SECONDS
        never = asyncio.Event()
        while token in self._tokens:
            self.heard = self.called = False
            if loop.time() >= deadline:
                raise DeafError(
                    f"{self.database} takes LISTEN, but a notification did not arrive within {PROOF_SECONDS:g} s: "
                    "a transaction pooler is in between, or it is not the database of DATABASE_URL"
                )
            await self.wait(never, deadline - loop.time())
        self.called = True  # what was told until now, nobody knows

    async def _execute(self, name: str, values: dict[str, Any]) -> Any:
        cursor = await _answered(self._connection, self._connection.execute(statement(name), values))
        return await cursor.fetchone()

    def _woken(self, _: "asyncio.Task[Any]") -> None:
        self._changed.set()

    def _read(self) -> bool:
        """Take what has arrived from the socket, which nothing else reads between two statements; say whether any."""
        pgconn = self._connection.pgconn
        pgconn.consume_input()
        any_arrived = False
        while (notification := pgconn.notifies()) is not None:
            any_arrived = True
            if pgconn.notify_handler is not None:
                pgconn.notify_handler(notification)
        return any_arrived

    def _notified(self, notification: psycopg.Notify) -> None:
        if notification.payload == _CALL:
            self.called = True
        elif notification.payload:
            self._tokens.discard(notification.payload)
        else:
            self.heard = True


async def _answered(connection: psycopg.AsyncConnection[Any], asking: Coroutine[Any, Any, T]) -> T:
    return await answered(connection, asking, STATEMENT_SECONDS)


def _milliseconds(seconds: float) -> str:
    return str(round(seconds * 1000))
