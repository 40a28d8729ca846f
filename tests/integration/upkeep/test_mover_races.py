"""What others do to a table while a page of it is on its way: no row is lost by it, and none is changed."""

import asyncio

import psycopg
import pytest

from relay.errors import ConfigurationError, MoveError
from relay.upkeep.table import Child, Table
from tests.support.moving import Hurried, asked, do, move
from tests.support.upkeep import somebody_waits

SOURCES = """
    create table sources (id bigint primary key, at timestamptz not null, state text not null, note text);
    insert into sources select n, '2024-02-03', 'over', 'note' from generate_series(1, 6) as n;
    create table lines (
        id bigint generated always as identity primary key, source_id bigint references sources {reference},
        at timestamptz not null default '2024-02-04');
    create index on lines (source_id)
"""
# What meets it waits for whoever has this lock, in the middle of a page and behind its snapshot.
GATE, GATED = 20260101, 1
CONDITION = f"""
    create function meets(id bigint, state text) returns boolean language plpgsql volatile as $$
    begin
        if id = {GATED} and (select count(*) from pg_locks where locktype = 'relation' and pid = pg_backend_pid()
                                and relation = 'sources'::regclass and mode = 'RowExclusiveLock') > 0 then
            perform pg_advisory_xact_lock_shared({GATE});
        end if;
        return state = 'over';
    end $$
"""  # noqa: S608 -- a test's own words
LINES = (Child("lines", "source_id", "at"),)


def sources(children: tuple[Child, ...] = (), where: str = "meets(id, state)") -> Table:
    """The description of the table."""
    return Table(name="sources", age="at", older_than="30d", where=where, children=children)


async def moved_beside(database: str, table: Table, *statements: str) -> int:
    """Move, and have somebody else do this in the middle of the page."""
    with psycopg.connect(database) as gate:
        gate.execute(f"select pg_advisory_xact_lock({GATE})".encode())
        moving = asyncio.create_task(move(database, table))
        await somebody_waits(database)
        do(database, *statements)
        gate.rollback()
        return (await moving).moved


@pytest.mark.parametrize("reference", ["on delete cascade", "on delete restrict", "on delete set null", ""])
async def test_a_child_that_comes_in_the_middle_of_a_page_goes_with_its_row(database: str, reference: str) -> None:
    """Or is there still, with it."""
    do(database, SOURCES.format(reference=reference), CONDITION, "insert into lines (source_id) values (5)")
    late = "insert into lines (source_id) values (1), (2), (3), (4), (5)"
    await moved_beside(database, sources(LINES), late)

    split = "select s.id from {}sources as s where (select count(*) from {}lines where source_id = s.id) <> {}"
    there = "(case when s.id = 5 then 2 when s.id = 6 then 0 else 1 end)"
    assert asked(database, split.format("", "", there)) == []
    assert asked(database, split.format("archive.", "archive.", there)) == []
    (rows,) = asked(database, "select (select count(*) from lines) + (select count(*) from archive.lines)")
    assert rows == 6


async def test_a_row_that_no_longer_meets_the_condition_in_the_middle_of_a_page_stays(database: str) -> None:
    """By what it has itself, and by what others say of it; what has changed otherwise is archived as it is."""
    do(database, SOURCES.format(reference=""), CONDITION)
    late = (
        "update sources set state = 'disputed' where id = 1",
        "update sources set note = 'changed' where id = 2",
        "insert into lines (source_id) values (4)",
    )
    where = "meets(id, state) and not exists (select from lines where source_id = sources.id)"
    assert await moved_beside(database, sources(where=where), *late) == 4
    assert asked(database, "select id from sources order by id") == [1, 4]
    assert asked(database, "select note from archive.sources order by id") == ["changed", "note", "note", "note"]


ALTERED = """
    select to_jsonb(s) || jsonb_build_object('lines', to_jsonb(l))
      from {0}sources as s join {0}lines as l on l.source_id = s.id
     where s.id > 2
     order by s.id
"""


SWAPPED = """
    alter table lines rename to elsewhere; create table lines (like elsewhere including all, remark text);
    insert into lines overriding system value select *, 'kept ' || id from elsewhere
"""


@pytest.mark.parametrize(
    "change",
    [
        "alter table sources add column remark text; update sources set remark = 'kept ' || id",
        "alter table lines add column remark text; update lines set remark = 'kept ' || id",
        SWAPPED,
    ],
)
async def test_columns_that_come_in_the_middle_of_a_walk_are_archived(database: str, change: str) -> None:
    """The walk ends there, and the next one knows them."""
    do(database, SOURCES.format(reference="").replace("references sources", ""))
    do(database, "insert into lines (source_id) select id from sources")
    before: list[str] = []

    class Altering(Hurried):
        async def wait(self, event: asyncio.Event, seconds: float) -> bool:
            if not self.rests:
                do(database, *change.split("; "))
                before.extend(asked(database, ALTERED.format("")))
            return await super().wait(event, seconds)

    table = Table(name="sources", age="at", older_than="30d", batch=2, children=LINES)
    first = await move(database, table, clock=Altering())
    assert (first.moved, first.finished) == (2, False)
    assert (await move(database, table)).moved == 4

    assert asked(database, ALTERED.format("archive.")) == before


@pytest.mark.parametrize("table", ["sources", "lines"])
async def test_a_cascade_that_comes_in_the_middle_of_a_walk_takes_nothing_away(database: str, table: str) -> None:
    """The walk ends there, and the next one refuses, as it would have at the beginning."""
    do(database, SOURCES.format(reference=""), "insert into lines (source_id) select id from sources")

    class Referring(Hurried):
        async def wait(self, event: asyncio.Event, seconds: float) -> bool:
            if not self.rests:
                do(
                    database,
                    f"create table marks (of_one bigint references {table} on delete cascade)",
                    f"insert into marks select id from {table}",  # noqa: S608 -- a test's own words
                )
            return await super().wait(event, seconds)

    described = Table(name="sources", age="at", older_than="30d", batch=2, children=LINES)
    assert (await move(database, described, clock=Referring())).moved == 2
    with pytest.raises(ConfigurationError, match=r"of public\.marks would be removed"):
        await move(database, described)

    assert asked(database, "select count(*) from marks") == [4]


@pytest.mark.parametrize("column", ["note", "at"])
async def test_a_column_that_goes_in_the_middle_of_a_walk_is_told_and_nothing_is_lost(
    database: str, column: str
) -> None:
    """The page stays as it is, and what the next run meets is what there is by then."""
    do(database, SOURCES.format(reference=""))

    class Dropping(Hurried):
        async def wait(self, event: asyncio.Event, seconds: float) -> bool:
            if not self.rests:
                do(database, f"alter table sources drop column {column}")
            return await super().wait(event, seconds)

    table = Table(name="sources", age="at", older_than="30d", batch=2)
    with pytest.raises(MoveError, match=rf"altered while rows were moved: column .*{column}\"? does not exist"):
        await move(database, table, clock=Dropping())
    assert asked(database, "select id from sources order by id") == [3, 4, 5, 6]
    if column == "at":
        with pytest.raises(ConfigurationError, match=r"no column 'at'"):
            await move(database, table)
    else:
        assert (await move(database, table)).moved == 4


async def test_a_column_that_a_trigger_misses_is_said_by_the_trigger(database: str) -> None:
    """Nobody has altered a table."""
    do(
        database,
        SOURCES.format(reference=""),
        "create function told() returns trigger language plpgsql as $$ begin return old.nothing; end $$",
        "create trigger told before delete on sources for each row execute function told()",
    )
    with pytest.raises(psycopg.errors.UndefinedColumn, match="nothing"):
        await move(database, Table(name="sources", age="at", older_than="30d"))
