"""One connection to the inbox: made when it is needed, made anew when it is lost, used by one statement at a time."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import psycopg

from consumers.errors import ConfigurationError
from idempotency import StoreUnavailableError
from relay import errors as relay_errors
from relay.kernel.failure import told
from relay.postgres.statements import Statements, search_path
from relay.postgres.wire import COMMIT, Row, Wire

statement = Statements("consumers.inbox")
Connect = Callable[[], Awaitable[psycopg.AsyncConnection[Any]]]

# No statement of ours waits for anybody else for long: what others hold is passed over.
STATEMENT_SECONDS: Final = 10.0
# What is said of a value that cannot be kept, by Postgres or before it: none of its kind, or more than it keeps.
UNKEPT: Final = (psycopg.DataError, psycopg.errors.ProgramLimitExceeded, psycopg.errors.StatementTooComplex)
# Then the server has not said that it gave up, and the session is given up with it.
_SILENCE_SECONDS: Final = 12.0


class Session:
    """Says one statement after the other. Raises StoreUnavailableError where the database does not answer."""

    def __init__(self, connect: Connect, schema: str, skew: Callable[[], float]) -> None:
        self._connect = connect
        self._enter = {"search_path": search_path(schema), "statement_ms": str(round(STATEMENT_SECONDS * 1000))}
        self._skew = skew
        self._wire: Wire | None = None
        self._turn = asyncio.Lock()
        self._is_cut = False

    async def ask(self, name: str, values: Mapping[str, object]) -> list[Row]:
        """The rows of the statement `sql/<name>.sql`.

        Raises one of UNKEPT where a value cannot be kept, and StoreUnavailableError for all else that goes wrong:
        whether it was done is not known then.
        """
        return (await self.ask_together((name, values)))[0]

    async def ask_together(self, *statements: tuple[str, Mapping[str, object]]) -> list[list[Row]]:
        """The rows of each, which must return some; what they do is done together or not at all. Raises as `ask`."""
        async with self._turn:
            try:
                async with asyncio.timeout(_SILENCE_SECONDS):
                    skew = self._skew()
                    return await self._say([(name, {**values, "skew": skew}) for name, values in statements])
            except UNKEPT:
                if self._wire is not None and self._wire.shared:
                    await self._drop()  # its transaction is open, and takes nothing more
                raise
            except (psycopg.Error, OSError, TimeoutError, relay_errors.RelayError, ConfigurationError) as error:
                await self._drop()
                raise StoreUnavailableError(f"the inbox was not reached: {told(error)}") from error
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
            if self._is_cut:
                raise OSError("the connection is cut")
            self._wire = Wire(await self._connect(), statement, self._enter)
            if self._is_cut:
                raise OSError("the connection was cut as it was made")
        wire = self._wire
        calls = [wire.call(name, values) for name, values in statements]
        if wire.shared:
            answers = await wire.say(*wire.begin(), *calls, COMMIT)
            return answers[-len(calls) :]
        # Those of one message are one transaction.
        return await wire.say(*calls)

    async def _drop(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            await wire.close()
