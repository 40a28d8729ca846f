"""A page of an export reads its own rows along the key, whatever Postgres believes of the table."""

from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
import pytest

from relay.dev.stack import Stack
from relay.testing import fresh_database
from relay.upkeep.archive import catalog
from relay.upkeep.archive.rows import Walk
from relay.upkeep.archive.session import Session, ask
from tests.support.plans import analysed_for_now, nodes

ROWS, PAGE = 300_000, 1_000
FILL = f"""
    create schema archive;
    create table archive.one (id bigint primary key, at timestamptz, note text);
    insert into archive.one select n, '2026-01-01', 'note' from generate_series(1, {ROWS}) as n;
    create table archive.two (kind text, id bigint, at timestamptz, primary key (kind, id));
    insert into archive.two select 'k' || n % 3, n, '2026-01-01' from generate_series(1, {ROWS}) as n;
"""  # noqa: S608 -- a test's own words


@pytest.fixture(scope="module")
def filled(stack: Stack) -> Iterator[str]:
    """Two sealed tables that nobody has analysed."""
    with fresh_database(stack.database_url) as url:
        with psycopg.connect(url) as connection:
            connection.execute("set default_statistics_target = 10")
            connection.execute(FILL.encode())
        yield url


@pytest.mark.parametrize("analysed", [False, True])
@pytest.mark.parametrize(
    ("table", "last"),
    [("one", ()), ("one", ("150000",)), ("two", ()), ("two", ("k1", "150000"))],
)
def test_a_page_is_read_along_the_key(filled: str, table: str, last: Sequence[str], *, analysed: bool) -> None:
    """No sort, no row but those of the page, from wherever the last one ended."""
    with analysed_for_now(filled), psycopg.connect(filled, autocommit=True) as connection:
        session = Session(connection, "public")
        oid = catalog.oid_of(session, "archive", table)
        assert oid
        walk = Walk(session, table, catalog.layout(session, oid, table))
        page = walk.statement(last, PAGE).as_string(connection).partition("copy (")[2].rpartition(") to stdout")[0]
        with session.transaction(ours=False):
            if analysed:
                connection.execute("analyze")
            ask(connection, "plan_along_the_key", {})
            found = connection.execute(f"explain (analyze, format json, timing off) {page}".encode()).fetchone()
            # What was analysed is unknown again to the next test.
            raise psycopg.Rollback

    plan: dict[str, Any] = found[0][0]["Plan"] if found else {}
    kinds = [node["Node Type"] for node in nodes(plan)]
    assert kinds == ["Limit", "Index Scan"]
    (scan,) = plan["Plans"]
    assert scan["Actual Rows"] == PAGE
    assert scan.get("Rows Removed by Filter", 0) == 0
    assert scan["Index Name"] == f"{table}_pkey"
