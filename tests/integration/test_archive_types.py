"""Values of every type come back from a file as they were, as Postgres itself compares and writes them."""

from collections.abc import Sequence
from datetime import date
from pathlib import Path

import psycopg
from psycopg import sql

from relay.upkeep.archive.columns import Kind
from relay.upkeep.table_name import TableName
from tests.support.archives import FIRST, Shelf, archive, count

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


def _same(database: str, names: Sequence[str], left: str, right: str) -> list[tuple[object, ...]]:
    """Rows that differ in what any of their columns is written as, bit by bit where that is not all."""
    each = sql.SQL("format('%s', {0}), {0} is null")
    written = sql.SQL(", ").join(each.format(sql.Identifier(name)) for name in names)
    query = sql.SQL(
        "(select id, {0} from {1} except all select id, {0} from {2}) union all "
        "(select id, {0} from {2} except all select id, {0} from {1})"
    ).format(written, *(sql.SQL(name) for name in (left, right)))  # type: ignore[arg-type] -- a test's own words
    with psycopg.connect(database) as connection:
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
    assert _same(database, names, "kept", "restored") == []


def test_each_kind_is_a_type_of_postgres(database: str) -> None:
    """A kind that no type has would never be used."""
    with psycopg.connect(database) as connection:
        known = connection.execute("select array_agg(typname::text) from pg_type").fetchone()
    assert known
    assert {kind.value for kind in Kind} - {Kind.WRITTEN.value} <= set(known[0])
