"""One connection: made when it is needed, made anew when it is lost, used by one statement at a time."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import psycopg

from relay.postgres.answering import answered
from relay.postgres.statements import search_path
from relay.postgres.wire import COMMIT, Row, Statement, Wire

Connect = Callable[[], Awaitable[psycopg.AsyncConnection[Any]]]

# What is said of a value that cannot be kept, by Postgres or before it: none of its kind, or more than it keeps.
UNKEPT: Final = (psycopg.DataError, psycopg.errors.ProgramLimitExceeded, psycopg.errors.StatementTooComplex)
# So much longer than its statements may take: then the server has not said that it gave up, and the session is given up
# with it.
_SILENCE_SECONDS: Final = 2.0


class Session:
    """Says statements of `sql/`, each with the skew of the clock among its values.

    The statement `enter` makes it fit for them; it is given `search_path`, `statement_ms` and `local`. Making a
    connection may take `connect_seconds`, or where these are not given as long as a statement.
    """

    def __init__(  # noqa: PLR0913 -- the last by its name
        self,
        connect: Connect,
        statement: Statement,
        schema: str,
        skew: Callable[[], float],
        statement_seconds: float,
        *,
        connect_seconds: float | None = None,
    ) -> None:
        self._connect = connect
        self._statement = statement
        self._enter = {"search_path": search_path(schema), "statement_ms": str(round(statement_seconds * 1000))}
        self._skew = skew
        self._patience = statement_seconds + _SILENCE_SECONDS
        self._connect_seconds = self._patience if connect_seconds is None else connect_seconds
        self._wire: Wire | None = None
        self._turn = asyncio.Lock()
        self._is_cut = False

    async def ask(self, name: str, values: Mapping[str, object]) -> list[Row]:
        """The rows of the statement `sql/<name>.sql`.

        Raises one of UNKEPT where a value cannot be kept. After all else that goes wrong it is not known whether it was
        done, and the session is ended.
        """
        return (await self.ask_together((name, values)))[0]

    async def ask_together(self, *statements: tuple[str, Mapping[str, object]]) -> list[list[Row]]:
        """The rows of each, which must return some; what they do is done together or not at all. Raises as `ask`."""
        async with self._turn:
            try:
                skew = self._skew()
                return await self._say([(name, {**values, "skew": skew}) for name, values in statements])
            except UNKEPT:
                if self._wire is not None and self._wire.shared:
                    await self._drop()  # its transaction is open, and takes nothing more
                raise
            except (
                BaseException
            ):  # a cancellation leaves a statement on its way, whose answer nobody may take for another
                await self._drop()
                raise

    async def rest(self) -> None:
        """End the session until the next statement."""
        async with self._turn:
            await self._drop()

    async def close(self) -> None:
        """End the session, and make none any more."""
        self._is_cut = True
        await self._drop()

    def cut(self) -> None:
        """End the session without a word, and make none any more."""
        self._is_cut = True
        if self._wire is not None:
            self._wire.cut()

    async def _say(self, statements: Sequence[tuple[str, Mapping[str, object]]]) -> list[list[Row]]:
        if self._wire is None or self._wire.ended:
            await self._drop()
            self._wire = await self._made()
        wire = self._wire
        calls = [wire.call(name, values) for name, values in statements]
        # Those of one message are one transaction.
        said = (*wire.begin(), *calls, COMMIT) if wire.shared else calls
        answers = await answered(wire.connection, wire.say(*said), self._patience)
        return answers[-len(calls) :]

    async def _made(self) -> Wire:
        if self._is_cut:
            raise OSError("the connection is cut")
        async with asyncio.timeout(self._connect_seconds):
            wire = Wire(await self._connect(), self._statement, self._enter)
        if self._is_cut:
            await wire.close()
            raise OSError("the connection was cut as it was made")
        return wire

    async def _drop(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            await wire.close()
