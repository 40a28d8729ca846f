"""Effects exactly once: a delivery is completed in the transaction that has the effect."""

import json
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, Final

from psycopg import sql

from consumers.dedup.protocol import Begun
from consumers.gather import Gather
from consumers.inbox.connections import Connections
from consumers.inbox.fan_out import DONE, FanOut
from consumers.inbox.inbox import Inbox
from consumers.inbox.rows import Owned, lost
from consumers.inbox.table import MOST_ROWS, Table
from consumers.inbox.words import kept
from relay.adapters.adapter import AsyncAdapter, Call, SyncAdapter
from relay.adapters.find import adapter_of, refused, remedy_of

_TAKES: Final = "ctx.complete takes a connection or session of psycopg, psycopg2, asyncpg, SQLAlchemy or Django"
_UNKEPT: Final = "the event would be completed whether or not its effect is there"


class InboxEffects:
    """Transactions on connections of the process's own, and completions on anybody's."""

    def __init__(self, inbox: Inbox, table: Table, connections: Connections, schema: str) -> None:
        self._inbox = inbox
        self._table = table
        self._connections = connections
        function = sql.Identifier(schema, "inbox_complete").as_string(None)
        self._call = Call(f"select {function}(\n", _UNKEPT, ")::text")
        self._confirmations: Gather[Owned, bool] = Gather(table.confirm, most=MOST_ROWS, at_once=1)
        inbox.also_given_up.append(self._confirmations.fail)
        self.fan_out = FanOut(connections, schema)
        self.transaction = connections.transaction
        self.transaction_in_thread = connections.transaction_in_thread
        self.cut = connections.cut

    def complete(self, begun: Begun, connection: Any, result: Any = None) -> Awaitable[None]:
        """Complete it in the connection's transaction; done when this returns, where the connection is synchronous."""
        owned: Owned = begun.token
        adapter = adapter_of(connection)
        if adapter is None:
            raise refused(_TAKES, connection, remedy_of(connection))
        said = json.dumps({"id": owned.id, "token": owned.token, "version": owned.revision})[:-1]
        answer = kept(result)
        said = f'{said}, "result": {answer}}}' if answer else f"{said}}}"
        # Its lease is that transaction's to end: a heartbeat would only find it locked.
        self._inbox.leave(owned)
        begun.completed = True
        match adapter:
            case SyncAdapter(store):
                _owned(owned, store(connection, said, self._call))
                return DONE
            case AsyncAdapter(store_async):
                return Completion(begun, lambda: self._awaited(owned, store_async(connection, said, self._call)))

    async def confirm(self, begun: Begun) -> bool:
        """Whether that transaction was committed."""
        owned: Owned = begun.token
        ended = await self._confirmations.ask(owned)
        if ended:
            self._inbox.forget(owned)
        return ended

    @staticmethod
    async def _awaited(owned: Owned, answers: Awaitable[Sequence[str | bytes]]) -> None:
        _owned(owned, await answers)


class Completion:
    """Completes the delivery when it is awaited, and not before."""

    def __init__(self, begun: Begun, complete: Callable[[], Awaitable[None]]) -> None:
        self._begun = begun
        self._complete = complete
        begun.unawaited = True

    def __await__(self) -> Generator[Any, None, None]:
        """Do it."""
        self._begun.unawaited = False
        return self._complete().__await__()


def _owned(owned: Owned, answers: Sequence[str | bytes]) -> None:
    if list(answers) not in (["true"], [b"true"]):
        raise lost(owned)
