"""A session, and what is said there: as many statements as belong together in one message.

It is a message of the simple protocol, and one round trip. A process that is stopped at any moment has sent all of it,
or nothing that counts: behind it the server ends a transaction that stays idle. A pipeline of the extended protocol
ends with a Flush; after one, Postgres ends no idle transaction, and a process that froze there would keep its locks.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache
from math import isfinite
from typing import Any, NamedTuple

import psycopg
from psycopg import sql
from psycopg.adapt import Buffer, Loader

Row = tuple[Any, ...]
Values = Mapping[str, object]
# A statement's text by its name.
Statement = Callable[[str], bytes]

BEGIN = "begin isolation level read committed"
COMMIT = "commit"

_PARAMETER = re.compile(r"%\((\w+)\)s")


class Prepared(NamedTuple):
    """A statement of `sql/`, as Postgres prepares it."""

    text: str
    parameters: list[str]  # by name, in the order of their numbers


@cache
def prepared(statement: Statement, name: str) -> Prepared:
    """Number the parameters of `sql/<name>.sql`."""
    text = statement(name).decode()
    names = list(dict.fromkeys(_PARAMETER.findall(text)))
    numbered = _PARAMETER.sub(lambda found: f"${names.index(found[1]) + 1}", text).replace("%%", "%")
    return Prepared(f"prepare {identifier(name)} as\n{numbered}", names)


def identifier(name: str) -> str:
    """What a statement is called on the server."""
    return name.replace("+", "_")


class Wire:
    """Statements are prepared when they are first said, unless a pooler hands the session out to others as well.

    The statement `enter` is said first; `%(local)s` in it is whether it holds for one transaction alone.
    """

    def __init__(self, connection: psycopg.AsyncConnection[Any], statement: Statement, enter: Values) -> None:
        connection.adapters.register_loader("jsonb", Unread)
        self.connection = connection
        self._statement = statement
        self._quoting = psycopg.AsyncClientCursor(connection)
        self._shared = connection.prepare_threshold is None
        self._enter = self._quoting.mogrify(statement("enter"), {**enter, "local": self._shared})
        self._prepared: set[str] = set()
        # What the session has to be told before anything else. In a message of its own: with each statement that is
        # prepared, Postgres keeps the whole message that it came in.
        self._owed = [] if self._shared else [self._enter]

    @property
    def shared(self) -> bool:
        """Whether the session is others' as well, so that each transaction has to make it fit for itself."""
        return self._shared

    def begin(self) -> list[str]:
        """What begins a transaction, in a session that is fit for it."""
        return [BEGIN, self._enter] if self._shared else [BEGIN]

    def call(self, name: str, values: Values) -> str:
        """The statement `sql/<name>.sql`, with these values."""
        if self._shared:
            return self._quoting.mogrify(self._statement(name), values)
        text, parameters = prepared(self._statement, name)
        listed = ", ".join([self._literal(values[each]) for each in parameters])
        if name not in self._prepared:
            self._prepared.add(name)
            self._owed.append(text)
        called = f"execute {identifier(name)}"
        return f"{called} ({listed})" if listed else called

    def _literal(self, value: object) -> str:
        """A value as SQL: what comes by every time is written at once, psycopg takes ten times as long."""
        match value:
            case bool():
                return "true" if value else "false"
            case int():
                return str(value)
            case float() if isfinite(value):
                return str(value)
            case str() if "'" not in value and "\\" not in value and "\0" not in value:
                return f"'{value}'"
            case []:
                return "'{}'"
            case _:
                return sql.Literal(value).as_string(self.connection)

    async def say(self, *statements: str) -> list[list[Row]]:
        """Send statements in one message; answer with the rows of each that returns any."""
        cursor = self.connection.cursor()
        owed, self._owed = self._owed, []
        for message in filter(None, (owed, statements)):
            await cursor.execute(";\n".join(message).encode(), prepare=False)
        answers = []
        going_on: bool | None = True
        while going_on:
            if cursor.rownumber is not None:  # its description would tell the same, column by column
                answers.append(await cursor.fetchall())
            going_on = cursor.nextset()
        return answers

    @property
    def ended(self) -> bool:
        """Whether the server has said by now that the session is over: a relay that slept has had it idle for long."""
        try:
            for _ in range(2):  # its last words, and then the end itself
                self.connection.pgconn.consume_input()
        except psycopg.OperationalError:
            return True
        return False

    def cut(self) -> None:
        """End the session without a word to the server, as the end of the process would."""
        self.connection.pgconn.finish()

    async def close(self) -> None:
        """End the session."""
        await self.connection.close()


class Unread(Loader):
    """What is JSON in the table travels as it is written there: nobody parses it on the way."""

    def load(self, data: Buffer) -> bytes:
        """Keep it."""
        return bytes(data)
