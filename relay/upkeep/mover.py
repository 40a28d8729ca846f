"""Moves rows that are over out of a table, a page at a time: into the archive, or away for good.

A round goes over all rows, by the key, up to where all are young; the next one begins at the first row again. A page is
moved as a whole or not at all, so a mover may be stopped at any instruction.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg import errors as pg

from relay.errors import ConfigurationError
from relay.kernel.clock import Clock, SystemClock
from relay.kernel.runner import Budget
from relay.upkeep.catalog import Catalog, Described
from relay.upkeep.faults import PASSING, in_words, lacks_month
from relay.upkeep.page import Key, Looked, Page
from relay.upkeep.position import Position
from relay.upkeep.shelf import Shelf
from relay.upkeep.table import Table
from relay.upkeep.transactions import FIRST, Transactions, raw, template

# After each page nothing is done for so many times as long as it took.
PAUSES: Final = 4
# Where somebody has a whole table for himself.
LOCKED_SECONDS: Final = 1.0
# Months of a shelf may be sealed while they are written to, but not that often.
_MOST_SEALED: Final = 3


@dataclass(frozen=True, slots=True)
class Moved:
    """What a mover has done."""

    read: int
    moved: int
    """Rows of the table; those of its children are not counted."""
    finished: bool
    """Whether the round has come to its end."""


class Mover:
    """That of one table.

    `connect` makes a connection in autocommit mode; `told` hears of each page how many rows were moved. Where `before`
    is given, in seconds since 1970, what is older is over.
    """

    def __init__(  # noqa: PLR0913 -- each by its name
        self,
        table: Table,
        connect: Callable[[], Awaitable[psycopg.AsyncConnection[Any]]],
        position: Position,
        *,
        clock: Clock | None = None,
        told: Callable[[int], None] = lambda _: None,
        before: float | None = None,
    ) -> None:
        self._table = table
        self._connect = connect
        self._position = position
        self._clock = clock or SystemClock()
        self._before = before
        self._told = told

    async def run(self, budget: Budget) -> Moved:
        """Go on with the round while the budget lasts; between two pages it is asked.

        Raises ConfigurationError where the table is not as it is described or the role may not do it, and MoveError
        where a row cannot be moved.
        """
        connection = await self._connect()
        try:
            with in_words(self._table):
                return await (await self._walk(connection, budget)).go()
        finally:
            await connection.close()

    async def _walk(self, connection: psycopg.AsyncConnection[Any], budget: Budget) -> "_Walk":
        ask, say = Transactions(connection, "catalog_enter"), Transactions(connection, "mover_enter")
        described = await Catalog(ask, say).described(self._table, self._before)
        await self._try_condition(say)
        archived = self._table.to == "archive"
        shelves = [Shelf(relation, described.role) for relation in described.relations] if archived else []
        for shelf in shelves:
            await shelf.prepare(ask)
        return _Walk(
            described,
            shelves,
            ask=ask,
            say=say,
            position=self._position,
            after=await self._position.begin(say, described),
            budget=budget,
            clock=self._clock,
            told=self._told,
        )

    async def _try_condition(self, say: Transactions) -> None:
        condition = template("catalog_condition", table=self._table.place.sql, where=raw(self._table.where))
        try:
            await say.do(condition)
        except pg.InsufficientPrivilege:
            raise
        except (psycopg.ProgrammingError, psycopg.DataError) as error:
            raise ConfigurationError(
                f"table {self._table.name!r}: where is no condition about its rows: {error.diag.message_primary}"
            ) from error


class _Walk:
    """One run of it."""

    def __init__(  # noqa: PLR0913 -- the parts of a run, made in one place
        self,
        described: Described,
        shelves: Sequence[Shelf],
        *,
        ask: Transactions,
        say: Transactions,
        position: Position,
        after: Key | None,
        budget: Budget,
        clock: Clock,
        told: Callable[[int], None],
    ) -> None:
        self._table = described.table
        self._page = Page(described, shelves)
        self._shelves = shelves
        self._ask = ask
        self._say = say
        self._position = position
        self._after = after
        self._budget = budget
        self._clock = clock
        self._told = told
        self._rows = self._table.batch
        self._sealed = 0
        self._altered = False

    async def go(self) -> Moved:
        """Page after page."""
        after, read, moved = self._after, 0, 0
        while not (self._altered or self._budget.spent(read)):
            began, asked = self._clock.monotonic(), self._rows
            looked = await self._look(after)
            count = None if looked is None else await self._move(after, looked)
            if looked is not None and count is not None:
                read, moved, after = read + looked.read, moved + count, looked.last or after
                self._rows = min(self._table.batch, 2 * self._rows)
                if looked.read < asked or looked.is_young:
                    await self._position.end(None)
                    return Moved(read, moved, finished=True)
                if not await self._position.note(after):
                    return Moved(read, moved, finished=False)
            took = self._clock.monotonic() - began
            await self._pause(max(PAUSES * took, asked / self._table.rate - took))
        await self._position.end(after)
        return Moved(read, moved, finished=False)

    async def _look(self, after: Key | None) -> Looked | None:
        """What is on the page; None where it is to be tried again, with fewer rows."""
        try:
            answers = await self._say.do(self._page.look(after, self._rows))
        except PASSING:
            if self._rows == 1:
                raise
            self._shrink()
            return None
        return Looked.of(answers[0][0])

    async def _move(self, after: Key | None, looked: Looked) -> int | None:
        """How many rows of a page were moved; None where it is to be tried again."""
        if not looked.over or looked.last is None or not await self._reach(looked):
            return None if looked.over else 0
        between = after, looked.last, self._rows
        try:
            held, moved = await self._say.do(
                self._page.hold(*between), self._page.move(*between), first=self._page.lock()
            )
        except pg.CheckViolation as error:
            self._sealed += 1
            if not lacks_month(error) or self._sealed > _MOST_SEALED:
                raise
            for shelf in self._shelves:
                await shelf.look(self._ask)
            return None
        except PASSING as error:
            return await self._held_up(error)
        self._sealed = 0
        if not held[0][1]:
            self._altered = True
            return None
        count = int(moved[0][0])
        self._told(count)
        return count

    async def _reach(self, looked: Looked) -> bool:
        """Whether there is a place for all that is over."""
        try:
            for shelf, months in zip(self._shelves, looked.months, strict=False):
                await shelf.reach(self._ask, months)
        except PASSING:
            await self._pause(LOCKED_SECONDS)
            return False
        return True

    async def _held_up(self, error: psycopg.Error) -> int | None:
        """What becomes of a page that somebody was in the way of."""
        if FIRST in getattr(error, "__notes__", ()):
            await self._pause(LOCKED_SECONDS)
            return None
        if self._rows > 1:
            self._shrink()
            return None
        # What hangs on this row is somebody else's: it is left to the next round.
        return 0

    def _shrink(self) -> None:
        self._rows = max(1, self._rows // 4)

    async def _pause(self, seconds: float) -> None:
        # Whoever rests until after the deadline is cancelled before it has noted how far it was.
        left = max(0.0, self._budget.deadline - self._budget.monotonic())
        await self._clock.wait(self._budget.stopping, min(seconds, left))
