"""Short transactions on one connection, each said in as few messages as can be.

They make the session fit for themselves alone, so that a pooler may stand between.
"""

from collections.abc import Mapping
from typing import Any, Final

import psycopg
from psycopg import sql

from relay.postgres.wire import BEGIN, COMMIT, Row
from relay.upkeep.statements import statement

FIRST: Final = "the transaction had only begun"


def template(name: str, /, **parts: sql.Composable) -> sql.Composed:
    """The statement `sql/<name>.sql` about a table that is not ours."""
    return raw(statement(name).decode()).format(**parts)


def raw(text: str) -> sql.SQL:
    """SQL as it is: a file of ours, what the catalogue says, or what the author of a description has written."""
    return sql.SQL(text)


class Transactions:
    """Says them one after the other. Raises what psycopg does; the transaction is rolled back then."""

    def __init__(self, connection: psycopg.AsyncConnection[Any], enter: str) -> None:
        self._connection = connection
        self._mogrifier = psycopg.AsyncClientCursor(connection)
        self._enter = statement(enter).decode()

    def call(self, name: str, values: Mapping[str, object]) -> sql.SQL:
        """The statement `sql/<name>.sql` with these values."""
        return raw(self._mogrifier.mogrify(statement(name), dict(values)))

    async def do(self, *statements: sql.Composable, first: sql.Composable | None = None) -> list[list[Row]]:
        """All of them in one transaction; the rows of each that returns any. `first` goes ahead, in its own message.

        An error of the first one bears the note FIRST.
        """
        texts = [each.as_string(self._connection) for each in statements]
        begun = [BEGIN, self._enter]
        try:
            if first is not None:
                begun = await self._say_first([*begun, first.as_string(self._connection)])
            answers = await self._say([*begun, *texts, COMMIT])
        except psycopg.Error:
            if not self._connection.closed:
                await self._connection.rollback()
            raise
        # The words that enter answer with what they have set.
        return answers if first is not None else answers[1:]

    async def _say_first(self, texts: list[str]) -> list[str]:
        try:
            await self._say(texts)
        except psycopg.Error as error:
            error.add_note(FIRST)
            raise
        return []

    async def _say(self, texts: list[str]) -> list[list[Row]]:
        cursor = self._connection.cursor()
        await cursor.execute(";\n".join(texts).encode(), prepare=False)
        answers = []
        going_on: bool | None = True
        while going_on:
            if cursor.rownumber is not None:
                answers.append(await cursor.fetchall())
            going_on = cursor.nextset()
        return answers
