"""Rows that are over leave their table, page after page, for the archive or for good."""

import asyncio
from typing import Any

import psycopg
import pytest

from relay.errors import MoveError
from relay.kernel.runner import Budget
from relay.postgres.connect import connect_async
from relay.upkeep.mover import PAUSES, Mover
from relay.upkeep.position import Scheduled
from relay.upkeep.table import Child, Table
from tests.support.moving import Hurried, asked, do, move, where_they_are
from tests.support.upkeep import somebody_waits

SOURCES = """
    create table sources (
        id         bigint generated always as identity primary key,
        name       text not null,
        created_at timestamptz not null,
        seen_at    timestamptz
    )
"""
# The first ones are of one month, some hundred days ago, one an hour; the others of today.
ROWS = """
    insert into sources (name, created_at, seen_at)
    select 'name ' || n, at, at
      from generate_series(1, {old} + {young}) as n
     cross join lateral (
           select case when n > {old} then now() else
                  date_trunc('month', now() at time zone 'UTC' - interval '100 days') at time zone 'UTC'
                  + n * interval '1 hour' end
           ) as times(at)
"""
DAYS = """
    set timezone = 'Asia/Tokyo';
    insert into days select (now() - n * interval '10 hours')::{kind}, n from generate_series(1, 100) as n
"""
LINES = """
    create table lines (
        id        bigint generated always as identity primary key,
        source_id bigint not null references sources,
        made_at   timestamptz not null default '2024-02-29 12:00+00'
    );
    create index on lines (source_id);
    insert into lines (source_id) select id from sources cross join generate_series(1, 3)
"""


def sources(**changed: Any) -> Table:
    """The description of the table."""
    return Table(**{"name": "sources", "age": "seen_at", "older_than": "30d", "born": "created_at", **changed})


@pytest.fixture
def filled(database: str) -> str:
    """25 old rows, and 12 young ones."""
    do(database, SOURCES, ROWS.format(old=25, young=12))
    return database


async def test_rows_that_are_over_move_into_the_archive(filled: str) -> None:
    """By the months of their age; the walk ends where all are young."""
    before = where_they_are(filled, "sources")
    moved = await move(filled, sources(batch=5))

    assert (moved.read, moved.moved, moved.finished) == (30, 25, True)
    after = where_they_are(filled, "sources", "archive.sources")
    assert sorted(after["sources"] + after["archive.sources"]) == sorted(before["sources"])
    places = "select distinct tableoid::regclass::text from archive.sources"
    months = "select distinct to_char(seen_at at time zone 'UTC', '\"archive.sources_\"YYYY_MM') from archive.sources"
    assert asked(filled, places) == asked(filled, months)
    (comment,) = asked(filled, "select obj_description('archive.sources'::regclass)")
    assert comment == "public.sources"


async def test_rows_that_go_nowhere_are_gone(filled: str) -> None:
    """No schema is made for them."""
    moved = await move(filled, sources(to="nowhere", where="name <> '7 % {}' -- and no more"))
    assert moved.moved == 25
    assert asked(filled, "select count(*) from sources") == [12]
    assert asked(filled, "select count(*) from pg_namespace where nspname = 'archive'") == [0]


async def test_rows_that_do_not_meet_the_condition_or_have_no_age_stay(filled: str) -> None:
    """As do those whose age is before all times."""
    do(
        filled,
        "update sources set seen_at = null where id = 1",
        "update sources set seen_at = '-infinity' where id = 2",
        "update sources set seen_at = '0044-03-15 BC' where id = 3",
    )
    moved = await move(filled, sources(where="name not like '%9' or null"))
    assert moved.moved == 25 - 3 - 2
    assert asked(filled, "select id from sources where id <= 25 order by id") == [1, 2, 3, 9, 19]


@pytest.mark.parametrize("reference", ["", "on delete cascade", "on delete restrict", "deferrable initially deferred"])
@pytest.mark.parametrize("to", ["archive", "nowhere"])
async def test_children_go_with_their_row(filled: str, reference: str, to: str) -> None:
    """By their own age, whatever the reference does when a row goes."""
    do(filled, LINES.replace("references sources", f"references sources {reference}"))
    before = where_they_are(filled, "lines")["lines"]
    await move(filled, sources(to=to, children=(Child("lines", "source_id", "made_at"),)))

    assert asked(filled, "select count(*) from lines") == [36]
    if to == "archive":
        after = where_they_are(filled, "lines", "archive.lines")
        assert sorted(after["lines"] + after["archive.lines"]) == sorted(before)
        assert asked(filled, "select count(*) from archive.lines_2024_02") == [75]


async def test_a_child_from_no_month_is_told_and_nothing_is_lost(filled: str) -> None:
    """It is its author's to say when that was."""
    do(filled, LINES, "update lines set made_at = 'infinity' where source_id = 3")
    before = where_they_are(filled, "sources", "lines")
    with pytest.raises(MoveError, match=r"has no month in archive.lines"):
        await move(filled, sources(children=(Child("lines", "source_id", "made_at"),)))
    assert where_they_are(filled, "sources", "lines") == before


async def test_what_somebody_holds_is_left_to_the_next_round(filled: str) -> None:
    """A row is passed over at once; where only what hangs on it is held, after a moment."""
    do(filled, LINES)
    table = sources(batch=4, children=(Child("lines", "source_id", "made_at"),))
    with psycopg.connect(filled) as other:
        other.execute("select from sources where id in (3, 9) for update")
        other.execute("select from lines where source_id = 12 for update")
        clock = Hurried()
        moved = await move(filled, table, clock=clock)
        assert (moved.moved, moved.finished) == (22, True)
        assert len(clock.rests) < 15, "pages grow again"
    assert asked(filled, "select id from sources where id <= 25 order by id") == [3, 9, 12]
    assert (await move(filled, table)).moved == 3


async def test_a_table_that_somebody_has_for_himself_is_waited_for(filled: str) -> None:
    """No row of it is passed over."""
    with psycopg.connect(filled) as other:
        other.execute("lock table sources in share mode")
        moving = asyncio.create_task(move(filled, sources()))
        await somebody_waits(filled)
        other.rollback()
        assert (await moving).moved == 25


async def test_a_row_that_is_referred_to_is_named_and_nothing_is_lost(filled: str) -> None:
    """The error has the constraint and the way out."""
    do(filled, "create table orders (source_id bigint references sources); insert into orders values (7)")
    before = where_they_are(filled, "sources")
    with pytest.raises(MoveError, match=r"referred to by public.orders \(constraint orders_source_id_fkey\)"):
        await move(filled, sources())
    assert where_they_are(filled, "sources", "archive.sources") == {**before, "archive.sources": []}
    moved = await move(filled, sources(where="not exists (select from orders where source_id = sources.id)"))
    assert moved.moved == 24


async def test_a_row_that_was_archived_already_is_not_removed(filled: str) -> None:
    """Two rows of one key are for a human to tell apart."""
    await move(filled, sources())
    do(filled, "insert into sources overriding system value select * from archive.sources where id = 3")
    with pytest.raises(MoveError, match=r"archive.sources_\d{4}_\d\d has a row already of the key"):
        await move(filled, sources())
    assert asked(filled, "select id from sources where id <= 25") == [3]


async def test_values_of_every_kind_travel_unchanged(database: str) -> None:
    """With generated columns, identities, enums, domains, arrays, composites, and what only extensions know."""
    do(
        database,
        "create schema \"Shop\"; create type \"Shop\".mood as enum ('sad', 'ok')",
        'create domain "Shop".cents as numeric(12, 2)',
        'create type "Shop".pair as (a integer, b text); create collation "Shop".numbers from "C"',
        """
        create table "Shop"."Odd.Things" (
            "select" integer, region text collate "Shop".numbers, day date not null, "Made %s" timestamp(3) not null,
            mood "Shop".mood, price "Shop".cents, tags text[], tree jsonb, raw json, amount numeric, pair "Shop".pair,
            pairs "Shop".pair[], data bytea, span interval, address inet, area box, real4 real, real8 double precision,
            window_ tstzrange, id uuid generated always as (md5(region)::uuid) stored,
            total numeric generated always as (amount * 2) stored, number bigint generated by default as identity,
            primary key (region, day, "select")
        )""",
        """
        insert into "Shop"."Odd.Things"
        select n, 'r' || n % 3, date '2020-01-30' + n % 5, timestamp '2020-01-30 12:00:00.123' + n * interval '1 day',
               'ok', 1.10,
               array['a,"{}', null, repeat('x', n)], jsonb_build_object('n', n, 'deep', array[null, 1.10]),
               '{"b": 1,  "a": 2}', 1.000::numeric / (n + 1), row(n, null)::"Shop".pair,
               array[row(n, 'x')]::"Shop".pair[],
               decode('00ff', 'hex'), interval '1 mon 2 days -03:00', '10.0.0.1/8', box(point(0, 1), point(2, 3)),
               'NaN', -0.0, tstzrange(now(), null)
          from generate_series(1, 50) as n""",
    )
    before = where_they_are(database, '"Shop"."Odd.Things"')['"Shop"."Odd.Things"']
    table = Table(name='Shop."Odd.Things"', age="Made %s", older_than="1d", batch=7)
    assert (await move(database, table)).moved == 50

    after = where_they_are(database, '"Shop"."Odd.Things"', 'archive."Odd.Things"')
    assert after == {'"Shop"."Odd.Things"': [], 'archive."Odd.Things"': sorted(before)}
    types = (
        "select array_agg(format_type(atttypid, atttypmod) order by attnum) from pg_attribute "
        "where attnum > 0 and attrelid = "
    )
    assert asked(database, types + "'archive.\"Odd.Things\"'::regclass") == asked(
        database, types + '\'"Shop"."Odd.Things"\'::regclass'
    )


@pytest.mark.parametrize("kind", ["date", "timestamp", "timestamptz"])
async def test_an_age_may_be_a_day_or_a_time(database: str, kind: str) -> None:
    """All of it in UTC, whatever the role's own time zone is; where it begins the key, the walk ends by it."""
    do(
        database,
        f"create table days (at {kind}, n integer, primary key (at, n))",
        DAYS.format(kind=kind),
        "alter role current_user set timezone = 'Asia/Tokyo'",
    )
    try:
        moved = await move(database, Table(name="days", age="at", older_than="20d", batch=10))
    finally:
        do(database, "alter role current_user reset timezone")
    assert moved.read < 100
    assert moved.moved == asked(database, "select count(*) from archive.days")[0]
    assert 48 <= moved.moved <= 53


async def test_a_table_is_walked_along_any_unique_index(filled: str) -> None:
    """In the order of its columns."""
    do(filled, "create unique index on sources (name, created_at)")
    table = sources(key=("name", "created_at"), batch=3, born=None)
    moved = await move(filled, table, until=lambda: asked(filled, "select count(*) from sources")[0] < 30)
    assert not moved.finished
    rest = await move(filled, table)
    assert (moved.moved + rest.moved, rest.finished) == (25, True)
    assert moved.read + rest.read == 37


async def test_a_walk_goes_on_where_it_was_and_then_begins_again(filled: str) -> None:
    """Each description of a table has a place of its own."""
    kept = "select position from relay_schedule where name = 'move:public.sources'"
    stopped = await move(filled, sources(batch=5), until=lambda: asked(filled, "select count(*) from sources")[0] < 30)
    assert (stopped.moved, stopped.finished) == (10, False)
    assert [list(position.values()) for position in asked(filled, kept)] == [[["10"]]]

    assert (await move(filled, sources(batch=5, where="id = 11"))).read == 20
    assert (await move(filled, sources(batch=5))).read == 15
    assert asked(filled, kept) == [{}]
    assert (await move(filled, sources(batch=20))).read == 12


async def test_a_mover_rests_four_times_as_long_as_it_works(filled: str) -> None:
    """And reads no more rows a second than it is told."""
    clock = Hurried()
    await move(filled, sources(batch=5, rate=10), clock=clock)
    assert len(clock.rests) == 5
    assert all(0.3 < rest <= 0.5 for rest in clock.rests)
    clock = Hurried()
    await move(filled, sources(batch=4, rate=1e9), clock=clock)
    assert all(rest > 0 for rest in clock.rests)
    assert PAUSES == 4


async def test_a_mover_that_rests_for_long_ends_with_its_time(filled: str) -> None:
    """It notes how far it was: cancelled in mid-rest, each run would begin at the first row, and end no further on."""
    kept = "select position from relay_schedule where name = 'move:public.sources'"
    clock = Hurried()
    mover = Mover(sources(batch=5, rate=0.01), lambda: connect_async(filled), Scheduled("public"), clock=clock)
    began = clock.monotonic()
    moved = await mover.run(Budget(began + 60, lambda: clock.monotonic() + sum(clock.rests), asyncio.Event()))
    assert sum(clock.rests) <= 60
    assert (moved.moved, moved.finished) == (5, False)
    assert [list(position.values()) for position in asked(filled, kept)] == [[["5"]]]


async def test_a_month_that_is_sealed_meanwhile_is_made_again(filled: str) -> None:
    """What comes later is in a new partition of the month."""
    await move(filled, sources(where="id <= 5"))
    (month,) = set(asked(filled, "select tableoid::regclass::text from archive.sources"))
    sealed = f"alter table archive.sources detach partition {month}; alter table {month} rename to sources_p1"

    class Sealing(Hurried):
        async def wait(self, event: asyncio.Event, seconds: float) -> bool:
            if not self.rests:
                do(filled, sealed)
            return await super().wait(event, seconds)

    moved = await move(filled, sources(batch=5, where="id < 12"), clock=Sealing())
    assert moved.moved == 6
    assert asked(filled, "select count(*) from archive.sources_p1") == [10]
    assert asked(filled, "select count(*) from archive.sources") == [1]


async def test_two_movers_at_once_move_each_row_once(filled: str) -> None:
    """They pass over what the other one holds."""
    do(filled, ROWS.format(old=400, young=0))
    both = await asyncio.gather(*(move(filled, sources(batch=10, born=None)) for _ in range(2)))
    again = await move(filled, sources(born=None))
    assert sum(each.moved for each in (*both, again)) == 425
    assert asked(filled, "select count(*), count(distinct id) from archive.sources") == [425]


async def test_columns_of_the_key_may_have_any_name(database: str) -> None:
    """Also those that a page gives to what it finds out."""
    names = ("month", "is_over", "key_2", "is_young", "key_1", "mover_page")
    listed = ", ".join(names)
    do(
        database,
        f"create table things ({' integer, '.join(names)} integer, age timestamptz not null, primary key ({listed}))",
        "insert into things select n, n % 3, n % 2, -n, n, n, timestamptz '2024-01-01' - n * interval '20 days' "
        "from generate_series(1, 40) as n",
    )
    moved = await move(database, Table(name="things", age="age", older_than="1d", batch=4))
    assert (moved.moved, moved.finished) == (40, True)
    assert asked(database, "select count(*) from archive.things") == [40]


LETTERS = """
    insert into {table} select {values} from generate_series(1, 100) as n
     cross join lateral (select translate(n::text, '0123456789', 'abcdefghij')) as told(small)
     cross join lateral (select case when n % 3 = 0 then upper(small) else small end) as written(name)
"""


@pytest.mark.parametrize("schema", ["public", "Kinds"])
@pytest.mark.parametrize("key", ["name", "tenant, name"])
async def test_a_key_of_a_type_with_an_order_of_its_own_is_walked_in_that_order(
    database: str, schema: str, key: str
) -> None:
    """Whatever schema its extension is in, and whatever else is in the key."""
    do(
        database,
        f'create schema if not exists "{schema}"',
        f'create extension citext schema "{schema}"',
        f'create table things (tenant integer, name "{schema}".citext, at timestamptz, primary key ({key}))',
        LETTERS.format(table="things", values="n % 2, name, '2026-01-02'"),
    )
    moved = await move(database, Table(name="things", age="at", older_than="1h", to="nowhere", batch=7))
    assert (moved.read, moved.moved, moved.finished) == (100, 100, True)


async def test_children_are_found_by_the_operator_of_the_key(database: str) -> None:
    """A cascade finds them by that one, and what nobody else found would be archived by nobody."""
    do(
        database,
        "create schema kinds",
        "create extension citext schema kinds",
        "create table things (name kinds.citext primary key, at timestamptz)",
        "create table lines (id integer primary key, name kinds.citext references things on delete cascade, "
        "at timestamptz not null)",
        "create index on lines (name)",
        LETTERS.format(table="things", values="name, '2026-01-02'"),
        LETTERS.format(table="lines", values="n, small, '2026-02-03'"),
    )
    children = (Child("lines", "name", "at"),)
    moved = await move(database, Table(name="things", age="at", older_than="1h", batch=7, children=children))
    assert (moved.moved, moved.finished) == (100, True)
    assert asked(database, "select count(*) from archive.lines") == [100]
