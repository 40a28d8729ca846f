"""How rows of a sealed table are read: a few at a time, in groups that depend on the rows alone."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from psycopg import sql

from relay.upkeep.archive import catalog, rows
from relay.upkeep.archive.rows import Walk
from relay.upkeep.archive.session import Session
from tests.support.archives import FIRST, Shelf, connector

TABLE = "sources_2026_01"


class Asked(Walk):
    """Notes how many rows each statement asks for."""

    asked: list[int]

    def statement(self, last: Sequence[str], most: int) -> sql.Composed:
        """The same."""
        self.asked.append(most)
        return super().statement(last, most)


@contextmanager
def walking(database: str) -> Iterator[Asked]:
    """Through the rows of a month."""
    with Session.open(connector(database), "public") as session:
        oid = catalog.oid_of(session, "archive", TABLE)
        assert oid is not None
        walk = Asked(session, TABLE, catalog.layout(session, oid, TABLE))
        walk.asked = []
        yield walk


def groups(database: str) -> list[tuple[int, tuple[str, ...]]]:
    """The number of rows of each, and where it ends."""
    with walking(database) as walk:
        return [(len(group.rows), group.last) for group in walk.groups((), 10**6)]


@pytest.fixture
def shelf(database: str) -> Shelf:
    """Thirty rows of 40 bytes, and ten of some 1,300 in their midst."""
    shelf = Shelf(database)
    shelf.month(FIRST)
    shelf.fill(FIRST, 15)
    shelf.fill(FIRST, 10, first=16, size=1_200)
    shelf.fill(FIRST, 15, first=26)
    return shelf


@pytest.mark.parametrize("page", [1, 4, 250])
def test_groups_are_the_same_however_many_rows_are_asked_for_at_once(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    """Bounded in rows, and in bytes: one that has as many as it may ends there, and the next begins behind it."""
    monkeypatch.setattr(rows, "PAGE_ROWS", page)
    monkeypatch.setattr(rows, "GROUP_ROWS", 12)
    monkeypatch.setattr(rows, "GROUP_BYTES", 4_000)

    found = groups(shelf.database)

    assert found == [(12, ("12",)), (7, ("19",)), (4, ("23",)), (12, ("35",)), (5, ("40",))]


def test_a_walk_that_ends_with_a_group_has_no_empty_one(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor one that ends with a page."""
    monkeypatch.setattr(rows, "PAGE_ROWS", 5)
    monkeypatch.setattr(rows, "GROUP_ROWS", 20)

    assert groups(shelf.database) == [(20, ("20",)), (20, ("40",))]


def test_a_statement_asks_for_few_rows_and_for_none_that_do_not_fit(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Postgres is busy with each for a moment. What is sent beyond a group would be sent again with the next one."""
    shelf.fill(FIRST, 960, first=41)
    with walking(shelf.database) as walk:
        (group,) = walk.groups((), 10**6)
        assert len(group.rows) == 1_000
        assert walk.asked == [250, 250, 250, 250, 250]

    monkeypatch.setattr(rows, "GROUP_BYTES", 4_000)
    with walking(shelf.database) as walk:
        each = [len(group.rows) for group in walk.groups(("15",), 10)]
        assert each == [4, 4, 2]
        assert walk.asked == [10, 4, 2]
