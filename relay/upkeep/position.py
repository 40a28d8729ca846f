"""How far a walk over a table has come: a row of relay_schedule for each table, and in it a note for each walk."""

import hashlib
import json
from typing import Final, Protocol

from psycopg import errors as pg
from psycopg import sql

from relay.errors import SchemaError
from relay.upkeep.catalog import Described
from relay.upkeep.page import Key
from relay.upkeep.transactions import Transactions, template

_LONGEST_NAME: Final = 200
PAGES_A_NOTE: Final = 20


class Position(Protocol):
    """Where a walk is. What is lost of it is read once more, and does no harm."""

    async def begin(self, say: Transactions, described: Described) -> Key | None:
        """Behind which row to go on; None for the first one."""
        ...

    async def note(self, after: Key | None) -> bool:
        """A page has come so far; False where somebody else goes on with the walk."""
        ...

    async def end(self, after: Key | None) -> None:
        """Go on there the next time; where the round is finished there is none."""
        ...


class Scheduled:
    """That of a mover of `relay_schedule` in a schema."""

    def __init__(self, schema: str) -> None:
        self._schema = schema
        self._say: Transactions | None = None
        self._parts: dict[str, sql.Composable] = {}
        self._noted: Key | None = None
        self._pages = 0

    async def begin(self, say: Transactions, described: Described) -> Key | None:
        """Behind which row to go on. Raises SchemaError where there is no such table."""
        self._say, parent = say, described.parent
        way = [described.table.age, described.table.where, *((column.name, column.type) for column in parent.key)]
        self._parts = {
            "schedule": sql.Identifier(self._schema, "relay_schedule"),
            "name": sql.Literal(f"move:{parent.origin}"[:_LONGEST_NAME]),
            "walk": sql.Literal(hashlib.sha256(json.dumps(way).encode()).hexdigest()[:16]),
        }
        try:
            answers = await self._say.do(template("position_read", **self._parts))
        except pg.UndefinedTable as error:
            raise SchemaError(
                f"schema {self._schema!r} has no table relay_schedule, where a mover notes how far it is; run: python "
                "-m relay migrate, or python -m consumers migrate"
            ) from error
        self._noted = answers[0][0][0] if answers[0] else None
        return self._noted

    async def note(self, after: Key | None) -> bool:
        """Written now and then."""
        self._pages += 1
        if self._pages % PAGES_A_NOTE == 0:
            await self.end(after)
        return True

    async def end(self, after: Key | None) -> None:
        """Written at once."""
        if after == self._noted or self._say is None:
            return
        if after is None:
            await self._say.do(template("position_forget", **self._parts))
        else:
            written = sql.Literal(json.dumps(list(after)))
            await self._say.do(template("position_note", **self._parts, position=written))
        self._noted = after
