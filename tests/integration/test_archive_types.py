"""Values of every type come back from a file as they were, as Postgres itself compares and writes them."""

from collections.abc import Iterator, Sequence
from datetime import date
from io import BytesIO
from json import dumps
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import sql

from relay.dev.stack import Stack
from relay.testing import fresh_database
from relay.upkeep.archive import catalog
from relay.upkeep.archive.columns import Kind
from relay.upkeep.archive.parquet import Provenance, Reader, Writer
from relay.upkeep.archive.rows import Walk
from relay.upkeep.archive.session import Session
from relay.upkeep.table_name import TableName
from tests.support.archives import FIRST, Shelf, archive, count
from tests.support.chaos import sized

JANUARY = date(2026, 1, 1)
TYPES = """
    create schema shop;
    create type shop.mood as enum ('fine', 'so, so', '"quoted"');
    create domain shop.positive as integer check (value > 0);
    create type shop.pair as (a integer, b text);
"""
# Each with values as SQL.
COLUMNS: dict[str, list[str]] = {
    "boolean": ["true", "false"],
    "smallint": ["-32768", "32767"],
    "integer": ["-2147483648", "2147483647"],
    "bigint": ["-9223372036854775808", "9223372036854775807", "0"],
    "real": ["'NaN'", "'-0'", "'Infinity'", "'-Infinity'", "1e-45", "3.4028235e38", "0.1"],
    "double precision": ["'NaN'", "'-0'", "'Infinity'", "'-Infinity'", "5e-324", "1.7976931348623157e308", "0.1"],
    "numeric": ["'NaN'", "'Infinity'", "'-Infinity'", "1.500", "-0.000000000000000000000001", "1e100"],
    "numeric(10,2)": ["1.5", "-12345678.90"],
    "text": ["''", r"E'a\tb\nc\\d'", "'\\N'", "'ünï 😀'", "'\"'"],
    "varchar(20)": ["'trailing  '", "''"],
    "char(5)": ["'ab'", "'  ab'"],
    '"char"': ["'x'"],
    "name": ["'a name'"],
    "bytea": [r"'\x'", r"'\x00ff5c'"],
    "uuid": ["'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"],
    "json": ["""'{"b": 1,  "a": [1e2, "\\u00e4"], "a": null}'""", "'null'"],
    "jsonb": ["""'{"b": 1.50, "a": "x\\ty"}'""", "'\"\"'", "'null'"],
    "date": ["'infinity'", "'-infinity'", "'0044-03-15 BC'", "'4713-01-01 BC'", "'5874897-12-31'", "'2026-01-31'"],
    "timestamp": ["'infinity'", "'-infinity'", "'4713-01-01 00:00:00 BC'", "'294246-12-31 23:59:59.999999'"],
    "timestamptz": ["'infinity'", "'-infinity'", "'0044-03-15 12:00:00.000001+02 BC'", "'1969-12-31 23:59:59.999999Z'"],
    "timestamp(0)": ["'2026-01-01 00:00:01'"],
    "time": ["'24:00:00'", "'00:00:00.000001'"],
    "timetz": ["'12:00:00+05:30'"],
    "interval": ["'-1 year 2 days -03:04:05.000006'", "'178000000 years'", "'0'"],
    "money": ["-1234567.89"],
    "inet": ["'10.0.0.1/8'", "'::1'"],
    "cidr": ["'10.0.0.0/8'"],
    "macaddr": ["'08:00:2b:01:02:03'"],
    "bit(3)": ["b'101'"],
    "varbit": ["b''", "b'1'"],
    "point": ["'(1e-300,0.1)'"],
    "tsvector": ["'a:1 ''b c'':2'"],
    "int4range": ["'[1,5)'", "'empty'"],
    "int4multirange": ["'{[1,5),[7,9)}'"],
    "integer[]": ["'{}'", "'{1,null,3}'", "'[0:1]={1,2}'", "'{{1,2},{3,4}}'"],
    "text[]": [r"""array['', 'null', null, 'a"b', E'\\', ',']"""],
    "timestamptz[]": ["array['infinity', '2026-01-01 00:00+00']::timestamptz[]"],
    "shop.mood": ["'so, so'", "'\"quoted\"'"],
    "shop.mood[]": ["""array['fine', 'so, so']::shop.mood[]"""],
    "shop.positive": ["7"],
    "shop.pair": ["row(1, 'a,\"b')", "row(null, null)", "row(1, '')"],
    "regclass": ["'pg_class'", "'archive_exports'"],
    "oid": ["4294967295"],
    "pg_lsn": ["'16/B374D848'"],
}


def _differing(connection: psycopg.Connection[Any], names: Sequence[str], left: str, right: str) -> list[Any]:
    """Rows of which any column is written otherwise: that tells -0 from 0, and one text of JSON from another."""
    each = sql.SQL("format('%s', {0}), {0} is distinct from null")
    written = sql.SQL(", ").join(each.format(sql.Identifier(name)) for name in names)
    query = sql.SQL(
        "(select id, {0} from {1} except all select id, {0} from {2}) union all "
        "(select id, {0} from {2} except all select id, {0} from {1})"
    ).format(written, *(sql.SQL(name) for name in (left, right)))
    return connection.execute(query).fetchall()


def test_every_type_comes_back_as_it_was(database: str, tmp_path: Path) -> None:
    """Extreme values, nulls and types of the user's; the new table has the same types, and none is left out."""
    names = [f"column {number} {type_}"[:60] for number, type_ in enumerate(COLUMNS)]
    with psycopg.connect(database) as connection:
        connection.execute(TYPES)
    columns = [f'"{name.replace(chr(34), chr(34) * 2)}" {type_}' for name, type_ in zip(names, COLUMNS, strict=True)]
    shelf = Shelf(database, ", ".join(["id bigint", "age timestamptz not null", *columns]))
    month = shelf.month(FIRST)
    most = max(map(len, COLUMNS.values()))
    for row in range(most + 1):
        said = ", ".join(values[row] if row < len(values) else "null" for values in COLUMNS.values())
        shelf.say(f"insert into {{}} values ({row}, '2026-01-05', {said.replace('{', '{{').replace('}', '}}')})", month)  # noqa: S608 -- the same
    with psycopg.connect(database) as connection:
        connection.execute("create table kept as table archive.sources")
    files = archive(database, tmp_path)
    files.export(shelf.origin, JANUARY)

    files.restore(shelf.origin, JANUARY, into=TableName("public", "restored"))

    with psycopg.connect(database) as connection:
        types = [
            connection.execute(
                "select attname, format_type(atttypid, atttypmod) from pg_attribute "
                "where attrelid = to_regclass(%s) and attnum > 0 order by attnum",
                (table,),
            ).fetchall()
            for table in ("kept", "restored")
        ]
    assert count(database, "restored") == most + 1
    assert types[0] == types[1]
    with psycopg.connect(database) as connection:
        assert _differing(connection, names, "kept", "restored") == []


def test_each_kind_is_a_type_of_postgres(database: str) -> None:
    """A kind that no type has would never be used."""
    with psycopg.connect(database) as connection:
        known = connection.execute("select array_agg(typname::text) from pg_type").fetchone()
    assert known
    assert {kind.value for kind in Kind} - {Kind.WRITTEN.value} <= set(known[0])


ASCII = st.text(st.characters(codec="ascii", exclude_characters="\0"))
JSON = st.dictionaries(ASCII, st.integers() | st.none() | ASCII)
ROW = st.tuples(
    st.integers(-(2**63), 2**63 - 1),
    st.none() | st.floats(width=32),
    st.none() | st.floats(),
    st.none() | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    st.none() | st.binary(),
    # Of dates and times: days from 4713 BC on, and microseconds of the day.
    st.none() | st.integers(-2_440_550, 106_000_000),
    st.none() | st.integers(0, 86_399_999_999),
    st.none() | st.decimals(allow_nan=False, allow_infinity=False),
    st.none() | st.lists(st.none() | ASCII),
    st.none() | JSON.map(dumps),
)
MADE = """
    create table made (id bigint primary key, f4 real, f8 double precision, t text, b bytea, d date, ts timestamp,
                       tz timestamptz, n numeric, a text[], j jsonb, jt json, iv interval)
"""
FILLED = """
    insert into archive.made values (%s, %s, %s, %s, %s, date '1970-01-01' + %s::int,
        timestamp '1970-01-01' + %s::int * interval '1 day' + %s::bigint * interval '1 microsecond',
        timestamptz '1970-01-01+00' + %s::int * interval '24 hours' + %s::bigint * interval '1 microsecond',
        %s, %s, %s, %s, make_interval(days => %s::int / 1000, secs => (%s::bigint / 1000)::float8))
"""


@pytest.fixture(scope="module")
def made(stack: Stack) -> Iterator[psycopg.Connection[Any]]:
    """A table of the schema archive, and one like it to restore to."""
    with fresh_database(stack.database_url) as url, psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create schema archive")
        connection.execute(MADE)
        connection.execute("create table archive.made (like made including all)")
        yield connection


@given(rows=st.lists(ROW, max_size=20, unique_by=lambda row: row[0]))
@settings(max_examples=sized(40, 1000), suppress_health_check=list(HealthCheck))
def test_whatever_the_values_they_come_back(made: psycopg.Connection[Any], rows: list[Any]) -> None:
    """Postgres compares both tables, and what it writes for each value; rows come in the order of their key."""
    made.execute("truncate made, archive.made")
    with made.cursor() as cursor:
        cursor.executemany(
            FILLED,
            [(i, f4, f8, t, b, d, d, us, d, us, n, a, j, j, d, us) for i, f4, f8, t, b, d, us, n, a, j in rows],
        )
    session = Session(made, "public")
    oid = catalog.oid_of(session, "archive", "made")
    assert oid
    layout = catalog.layout(session, oid, "made")
    file = BytesIO()
    with Writer(file, layout, Provenance("public.made", JANUARY, 1, 1)) as writer:
        for group in Walk(session, "made", layout).groups((), 10**6):
            writer.write(group)
    reader = Reader(file, "a file")

    found = [record for records in reader.records() for record in records]

    with made.cursor().copy("copy made from stdin") as copy:
        for record in found:
            copy.write_row(record)
    assert [record[0] for record in found] == sorted(row[0] for row in rows)
    assert reader.rows == len(rows)
    names = [column.name for column in layout.columns]
    assert _differing(made, names, "made", "archive.made") == []
