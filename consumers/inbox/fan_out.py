"""One event, many recipients: a delivery for each, stored in one transaction."""

import asyncio
import json
from collections.abc import Awaitable, Generator, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from psycopg import sql

from consumers.dedup.protocol import Begun
from consumers.errors import UsageError
from consumers.inbox.connections import Connections
from consumers.inbox.rows import Owned, lost
from consumers.sharding import shard_of
from consumers.texts import is_kept
from relay.adapters.adapter import AsyncAdapter, Call, SyncAdapter
from relay.adapters.find import adapter_of, refused, remedy_of

_TAKES: Final = "ctx.fan_out takes a connection or session of psycopg, psycopg2, asyncpg, SQLAlchemy or Django"
_UNKEPT: Final = "recipients would be there whether or not the event's own handler comes to its end"
# In one statement; a call may have any number of them.
_MOST: Final = 5_000
# With the consumer's name, as much as an index of Postgres takes for certain.
_LONGEST: Final = 500
_LOST: Final = "lost"


class Done:
    """Nothing to wait for."""

    def __await__(self) -> Generator[None, None, None]:
        """Return at once."""
        return
        yield


DONE: Final = Done()


class FanOut:
    """Called with a begun delivery, its recipients and a connection; without one it uses one of the process's own."""

    def __init__(self, connections: Connections, schema: str) -> None:
        self._connections = connections
        function = sql.Identifier(schema, "inbox_fan_out").as_string(None)
        self._call = Call(f"select coalesce({function}(\n", _UNKEPT, f")::text, '{_LOST}')")

    def __call__(self, begun: Begun, recipients: Iterable[str], connection: Any = None) -> Awaitable[None]:
        """Store them; done when this returns, in a thread and where the connection is synchronous."""
        owned: Owned = begun.token
        said = _said(owned, recipients)
        owned.fanned_out = True
        if connection is None:
            if _in_loop():
                return self._alone(owned, said)
            with self._connections.transaction_in_thread() as own:
                return self._on(own, owned, said)
        return self._on(connection, owned, said)

    def _on(self, connection: Any, owned: Owned, said: Iterator[str]) -> Awaitable[None]:
        match adapter_of(connection):
            case None:
                raise refused(_TAKES, connection, remedy_of(connection))
            case SyncAdapter(store):
                for words in said:
                    _owned(owned, store(connection, words, self._call))
                return DONE
            case AsyncAdapter(store_async):
                return self._awaited(owned, (store_async(connection, words, self._call) for words in said))

    async def _alone(self, owned: Owned, said: Iterator[str]) -> None:
        async with self._connections.transaction() as own:
            await self._on(own, owned, said)

    @staticmethod
    async def _awaited(owned: Owned, calls: Iterator[Awaitable[Sequence[str | bytes]]]) -> None:
        for call in calls:
            _owned(owned, await call)


def _said(owned: Owned, recipients: Iterable[str]) -> Iterator[str]:
    """What the statements are told, one after the other: the recipients may be more than anybody wants in memory."""
    if isinstance(recipients, str | bytes) or not isinstance(recipients, Iterable):
        raise UsageError(
            f"ctx.fan_out takes no {type(recipients).__name__}; give it a list of texts, one for each recipient"
        )
    return _statements(owned, iter(recipients))


def _statements(owned: Owned, left: Iterator[str]) -> Iterator[str]:
    while some := list(islice(left, _MOST)):
        named = [[_checked(each), shard_of(each)] for each in some]
        yield json.dumps({"id": owned.id, "token": owned.token, "recipients": named})


def _checked(recipient: object) -> str:
    if not isinstance(recipient, str):
        raise UsageError(f"a recipient is of type {type(recipient).__name__}; give texts, such as str(user_id)")
    if not is_kept(recipient, _LONGEST):
        raise UsageError(
            f"a recipient of {len(recipient)} characters cannot be kept; give 1 to {_LONGEST} of UTF-8, not all "
            "of them blank, without NUL"
        )
    return recipient


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _owned(owned: Owned, answers: Sequence[str | bytes]) -> None:
    if list(answers) in ([_LOST], [_LOST.encode()]):
        raise lost(owned)
