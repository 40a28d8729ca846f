"""How far a walk over a table has come: a row of relay_schedule for each table, and in it a note for each walk."""

import hashlib
import json
from typing import Final

from psycopg import sql

from relay.upkeep.catalog import Described
from relay.upkeep.faults import SCHEDULE
from relay.upkeep.page import Key
from relay.upkeep.transactions import Transactions, template

_LONGEST_NAME: Final = 200


class Position:
    """That of one walk. What is lost of it is read once more, and does no harm."""

    def __init__(self, say: Transactions, schema: str, described: Described) -> None:
        self._say = say
        parent = described.parent
        way = [described.table.age, described.table.where, *((column.name, column.type) for column in parent.key)]
        self._parts: dict[str, sql.Composable] = {
            "schedule": sql.Identifier(schema, SCHEDULE),
            "name": sql.Literal(f"move:{parent.origin}"[:_LONGEST_NAME]),
            "walk": sql.Literal(hashlib.sha256(json.dumps(way).encode()).hexdigest()[:16]),
        }
        self._noted: Key | None = None

    async def read(self) -> Key | None:
        """Behind which row to go on; None for the first one."""
        answers = await self._say.do(template("position_read", **self._parts))
        self._noted = answers[0][0][0] if answers[0] else None
        return self._noted

    async def note(self, after: Key | None) -> None:
        """Go on there the next time; None is the first row again."""
        if after == self._noted:
            return
        if after is None:
            await self._say.do(template("position_forget", **self._parts))
        else:
            written = sql.Literal(json.dumps(list(after)))
            await self._say.do(template("position_note", **self._parts, position=written))
        self._noted = after
