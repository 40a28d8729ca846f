"""A page of a mover reads its own rows, in a table of a million and whatever Postgres believes of it."""

import asyncio
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from relay.dev.stack import Stack
from relay.testing.databases import fresh_database
from relay.upkeep.page import Page
from relay.upkeep.statements import statement
from relay.upkeep.table import Child, Table
from tests.support.moving import do, page_of, visited
from tests.support.plans import analysed_for_now

pytestmark = pytest.mark.slow("fills two large tables")

ROWS, PAGE = 1_000_000, 500
# Whether the tables have those that they had, asked twice; and references, each with two triggers at either end.
COLUMNS, REFERENCES = "pg_attribute_relid_attnum_index", "pg_trigger_tgrelid_tgname_index"
# Half of them are over, each with one child: before 18, Postgres tells the rows of a loop as a whole number.
# There is an index of the age, which would be read to its end.
FILL = f"""
    create table things (id bigint primary key, at timestamptz not null, state text not null, note text not null);
    insert into things
    select n, '2024-02-01'::timestamptz + n * interval '1 second', (array['failed', 'done'])[2 - n % 2], 'note'
      from generate_series(1, {ROWS}) as n;
    create index on things (at);
    create table bits (id bigint primary key, thing bigint references things, at timestamptz not null);
    insert into bits select id, id, at from things where id % 2 = 0;
    create index on bits (thing);
"""  # noqa: S608 -- a test's own words
TABLE = Table(
    name="things",
    age="at",
    older_than="30d",
    where="state = 'done'",
    batch=PAGE,
    children=(Child("bits", "thing", "at"),),
)


@pytest.fixture(scope="module")
def filled(stack: Stack, template: str) -> Iterator[tuple[str, Page]]:
    """The table, for tests that commit nothing; nobody has looked at it since it was filled."""
    with fresh_database(stack.database_url, template) as url:
        with psycopg.connect(url) as connection:
            connection.execute(FILL.encode())
        yield url, asyncio.run(page_of(url, TABLE, ["2024-02-01"]))


@pytest.fixture(params=[False, True], ids=["never analysed", "analysed"])
def connection(filled: tuple[str, Page], request: pytest.FixtureRequest) -> Iterator[psycopg.Connection[Any]]:
    """A session of the mover, rolled back."""
    with analysed_for_now(filled[0]), psycopg.connect(filled[0]) as connection:
        if request.param:
            connection.execute("analyze things, bits")
        connection.execute(statement("mover_enter"))
        yield connection
        connection.rollback()


@pytest.mark.parametrize("after", [None, ["500000"]])
def test_a_page_is_looked_at_by_its_key(
    filled: tuple[str, Page], connection: psycopg.Connection[Any], after: list[str] | None
) -> None:
    """With its children, by theirs."""
    assert visited(connection, filled[1].look(after, PAGE)) == {"things_pkey": PAGE, "bits_thing_idx": PAGE // 2}


@pytest.mark.parametrize("after", [None, ["500000"]])
def test_a_page_is_moved_by_its_key(
    filled: tuple[str, Page], connection: psycopg.Connection[Any], after: list[str] | None
) -> None:
    """Once to hold what is over, once to find it and once to remove it."""
    last = [str(int((after or ["0"])[0]) + PAGE)]
    held = visited(connection, filled[1].hold(after, last, PAGE))
    assert held == {"things_pkey": PAGE, COLUMNS: 2 * 7, REFERENCES: 2 * 4}
    found = visited(connection, filled[1].move(after, last, PAGE))
    assert found == {"things_pkey": PAGE + PAGE // 2, "bits_thing_idx": PAGE // 2}
    assert connection.execute("select count(*) from archive.things").fetchone() == (PAGE // 2,)


@pytest.mark.parametrize(("schema", "rows"), [("public", PAGE), ("kinds", 2 * PAGE)])
async def test_a_key_of_a_type_of_an_extension_is_read_from_the_row_on(database: str, schema: str, rows: int) -> None:
    """Where the session finds its operators; else from the first row on that has the same first column."""
    do(
        database,
        f"create schema if not exists {schema}",
        f"create extension citext schema {schema}",
        f"create table texts (tenant integer, name {schema}.citext, at timestamptz, primary key (tenant, name))",
        f"insert into texts select 1, to_char(n, '0000'), '2024-02-01' from generate_series(1, {3 * PAGE}) as n",  # noqa: S608 -- a test's own words
    )
    page = await page_of(database, Table(name="texts", age="at", older_than="30d", to="nowhere"))
    with psycopg.connect(database) as connection:
        connection.execute(statement("mover_enter"))
        assert visited(connection, page.look(["1", f" {PAGE:04}"], PAGE)) == {"texts_pkey": rows}
