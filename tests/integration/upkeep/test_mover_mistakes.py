"""A description that does not fit the database is refused in one sentence, before any row is touched."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from relay.errors import ConfigurationError, MoveError, SchemaError
from relay.upkeep.table import Child, Table
from tests.support.moving import asked, do, move

TABLES = """
    create table sources (id bigint primary key, name text unique, at timestamptz not null, nine integer);
    create unique index on sources (nine desc);
    create unique index sources_young on sources (at) where nine > 1;
    create table lines (id bigint primary key, source_id bigint, at timestamptz, made timestamptz not null,
        nine bigint);
    create index on lines (source_id);
    create table bare (source_id bigint, made timestamptz not null);
    create index on bare (source_id);
    create table pairs (a integer, b integer, at timestamptz, primary key (a, b));
    create table loose (id bigint, at timestamptz);
    create view seen as select * from sources;
    create table elder (id bigint primary key, at timestamptz);
    create table heir () inherits (elder);
    create table hanging (id bigint primary key, source_id bigint references sources on delete cascade);
    insert into sources
    select n, n::text, now() - interval '1 year' + n * interval '1 minute', n from generate_series(1, 9) as n
"""
LINES = Child("lines", "source_id", "made")
LONG = "x" * 51


def sources(**changed: Any) -> Table:
    """The description of the table, in which one thing is wrong."""
    return Table(**{"name": "sources", "age": "at", "older_than": "30d", **changed})


@pytest.fixture
def filled(database: str) -> str:
    """Tables, as people have them."""
    do(database, TABLES)
    return database


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        (sources(name="Sources"), r"no table public.Sources .*capitals count"),
        (sources(name="shop.sources"), r"no table shop.sources"),
        (sources(name="seen"), r"public.seen is a view, and rows cannot be moved from there; name a table by itself"),
        (sources(name="elder"), r"public.elder has tables that inherit from it"),
        (sources(age="att"), r"public.sources has no column 'att', named as age; did you mean 'at'"),
        (sources(age="name"), r"public.sources.name is text, named as age; name a column of type timestamptz"),
        (sources(born="nine"), r"public.sources.nine is integer, named as born"),
        (sources(key=("nine",)), r"public.sources.nine may be null.* alter column \"nine\" set not null"),
        (sources(key=("at",)), r"no unique index on exactly \(\"at\"\).*create unique index concurrently on"),
        (sources(name="loose"), r"public.loose has no primary key .*key="),
        (
            sources(to="nowhere", where="nmae = ''"),
            r"where is no condition about its rows: column \"nmae\" does not exist",
        ),
        (
            sources(to="nowhere", where="id"),
            r"where is no condition about its rows: argument of WHERE must be type boolean",
        ),
        (sources(children=(Child("line", "source_id", "made"),)), r"no table public.line"),
        (sources(children=(Child("lines", "source", "made"),)), r"no column 'source', .*did you mean 'source_id'"),
        (sources(children=(Child("lines", "source_id", "at"),)), r"public.lines.at may be null.*set not null"),
        (
            sources(children=(Child("lines", "id", "made"), Child("bare", "made", "made"))),
            r"public.bare.made is timestamp with time zone, and cannot be compared with public.sources.id",
        ),
        (sources(children=(Child("lines", "nine", "made"),)), r"public.lines has no index that begins with nine"),
        (sources(children=(Child("bare", "source_id", "made"),)), r"public.bare has no primary key"),
        (sources(name="pairs", children=(LINES,)), r"public.pairs has the key \(a, b\)"),
        (sources(), r"rows of public.hanging would be removed with theirs and not archived"),
    ],
)
async def test_a_description_that_does_not_fit_is_refused(filled: str, table: Table, sentence: str) -> None:
    """Whatever is wrong, no row is gone."""
    with pytest.raises(ConfigurationError, match=sentence):
        await move(filled, table)
    assert asked(filled, "select count(*) from sources") == [9]


@pytest.mark.parametrize(
    ("reference", "sentence"),
    [
        ("alter table pairs add copy_of integer references pairs (n) on delete cascade", "pairs would be removed"),
        ("alter table lines add seen_by bigint references pairs (n) on delete cascade", "lines would be removed"),
        ("alter table lines add note_of bigint references lines on delete cascade", "lines would be removed"),
        (
            "alter table lines add foreign key (pair) references pairs (other) on delete cascade",
            "lines would be removed",
        ),
        ("create table more (part integer references pairs_1 (n) on delete cascade)", "more would be removed"),
        ("alter table lines add foreign key (pair) references pairs (n) on delete cascade", None),
    ],
)
async def test_whatever_would_be_removed_and_not_archived_is_refused(
    database: str, reference: str, sentence: str | None
) -> None:
    """Also a row of the same table, of a child by another column, and one that refers to a partition."""
    do(
        database,
        "create table pairs (n integer primary key, at timestamptz not null, other integer not null, unique (n, other))"
        " partition by range (n)",
        "create table pairs_1 partition of pairs for values from (1) to (9)",
        "create table lines (id bigint primary key, pair integer, at timestamptz not null)",
        "create index on lines (pair)",
        "insert into pairs values (1, '2024-01-01', 1)",
        "insert into lines values (1, 1, '2024-01-01')",
    )
    if "(other)" in reference:
        do(
            database,
            "drop table pairs cascade",
            "create table pairs (n integer primary key, at timestamptz not null, other integer unique)",
            "insert into pairs values (1, '2024-01-01', 1)",
        )
    do(database, reference)
    table = sources(name="pairs", children=(Child("lines", "pair", "at"),))
    if sentence is None:
        assert (await move(database, table)).moved == 1
        return
    with pytest.raises(ConfigurationError, match=sentence):
        await move(database, table)
    assert asked(database, "select count(*) from pairs") == [1]


async def test_a_name_that_leaves_no_room_for_a_month_is_refused(database: str) -> None:
    """Postgres would cut it, and mix up two months."""
    do(database, f"create table {LONG} (id integer primary key, at date)")
    with pytest.raises(ConfigurationError, match="more than 50 bytes"):
        await move(database, sources(name=LONG))
    assert (await move(database, sources(name=LONG, to="nowhere"))).finished


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            "comment on table archive.pairs is 'shop.pairs'",
            r"archive.pairs has no rows of public.pairs, but those of 'shop",
        ),
        ("comment on table archive.pairs is null", r"but nothing says whose"),
        (
            "alter table pairs alter column b type bigint",
            r"archive.pairs.b is integer, and public.pairs.b is bigint by now; run: alter table \"archive\".\"",
        ),
        (
            "alter table pairs rename column at to since",
            r"archive.pairs is partitioned by at, and the age of public.pairs is since",
        ),
        (
            "alter table pairs drop column b; alter table pairs add primary key (a)",
            r"archive.pairs.b is never null .* has no such column by now; seal each month: .* --table public",
        ),
    ],
)
async def test_an_archived_table_that_does_not_fit_is_refused(filled: str, change: str, sentence: str) -> None:
    """Before anything is put there."""
    do(filled, "insert into pairs values (1, 1, now() - interval '1 year')")
    await move(filled, sources(name="pairs"))
    do(filled, change)
    (age,) = asked(filled, "select attname from pg_attribute where attrelid = 'pairs'::regclass and attnum = 3")
    shelved = "select count(*) from pg_attribute where attrelid = 'archive.pairs'::regclass"
    before = asked(filled, shelved)
    with pytest.raises(ConfigurationError, match=sentence):
        await move(filled, sources(name="pairs", age=age))
    assert asked(filled, shelved) == before


async def test_a_column_of_the_key_that_was_renamed_is_told_with_what_renames_it_there(filled: str) -> None:
    """Nothing was added by then that would be in the way."""
    do(filled, "insert into pairs values (1, 1, '2024-02-03')")
    await move(filled, sources(name="pairs"))
    do(filled, "alter table pairs add remark integer", 'alter table pairs rename column b to "New"')
    do(filled, "insert into pairs values (1, 2, '2024-02-03')")
    with pytest.raises(ConfigurationError, match=r"archive.pairs.b is never null in pairs_2024_02") as refused:
        await move(filled, sources(name="pairs"))
    do(filled, str(refused.value).partition("run: ")[2].partition(";")[0])
    assert (await move(filled, sources(name="pairs"))).moved == 1
    assert asked(filled, 'select "New" from archive.pairs order by 1') == [1, 2]


async def test_a_month_that_is_in_the_way_is_named(filled: str) -> None:
    """It is somebody's, and not touched."""
    do(filled, "insert into pairs values (1, 1, '2024-02-03')", "create schema archive")
    do(filled, "create table archive.pairs_2024_02 (somebody text)")
    with pytest.raises(ConfigurationError, match=r"archive.pairs_2024_02 is in the way"):
        await move(filled, sources(name="pairs"))


async def test_columns_that_came_since_are_archived_too(filled: str) -> None:
    """And those that went are empty from then on."""
    do(filled, "insert into pairs values (1, 1, '2024-02-03')")
    await move(filled, sources(name="pairs"))
    do(
        filled,
        'alter table pairs add column "New" numeric(5, 2) not null default 1.50',
        "alter table lines drop column at",
    )
    do(filled, "insert into pairs values (1, 2, '2024-02-04')")
    await move(filled, sources(name="pairs"))
    assert asked(filled, 'select row(b, "New")::text from archive.pairs order by b') == ["(1,)", "(2,1.50)"]


async def test_a_column_that_cannot_be_added_while_somebody_reads_the_archive_is_told(filled: str) -> None:
    """And is, as soon as they have done; who wants to read waits behind that for half a second at most."""
    do(filled, "insert into pairs values (1, 1, '2024-02-03')")
    await move(filled, sources(name="pairs"))
    do(filled, "alter table pairs add column remark text", "insert into pairs values (1, 2, '2024-02-04', 'kept')")
    with psycopg.connect(filled) as backup:
        backup.execute("lock table archive.pairs_2024_02 in access share mode")
        with pytest.raises(MoveError, match=r"archive.pairs could not be given the column remark"):
            await move(filled, sources(name="pairs"))
    assert (await move(filled, sources(name="pairs"))).moved == 1
    assert asked(filled, "select remark from archive.pairs where b = 2") == ["kept"]


async def test_a_server_that_takes_no_changes_is_told(filled: str) -> None:
    """Such as a standby, once a failover has made it one."""
    do(filled, "insert into pairs values (1, 1, '2024-02-03')")
    with pytest.raises(MoveError, match=r"no further rows of public.pairs were moved, for the server takes no changes"):
        await move(
            make_conninfo(filled, options="-c default_transaction_read_only=on"), sources(name="pairs", to="nowhere")
        )


async def test_a_table_that_somebody_has_for_himself_when_a_run_begins_is_told(filled: str) -> None:
    """The next run goes on."""
    with psycopg.connect(filled) as somebody:
        somebody.execute("lock table pairs")
        with pytest.raises(MoveError, match=r"somebody was in the way, .* due to lock timeout"):
            await move(filled, sources(name="pairs", to="nowhere"))


async def test_a_schema_without_the_tables_is_told(bare_database: str) -> None:
    """With the command that makes them."""
    do(bare_database, TABLES)
    with pytest.raises(SchemaError, match=r"no table relay_schedule.*relay migrate"):
        await move(bare_database, sources(to="nowhere"))


@pytest.fixture
def poor(filled: str) -> Iterator[str]:
    """As a role that may do what a test grants it."""
    name = f"mover_{filled.rpartition('_')[2][:12]}"
    do(filled, f"create role {name} login password 'poor'")
    with psycopg.connect(filled) as owner:
        yield make_conninfo(filled, user=name, password="poor")  # noqa: S106 -- of a role that lives as long as a test
        owner.rollback()
    do(filled, f"drop owned by {name}; drop role {name}")


async def test_each_right_that_is_missing_is_named_with_its_grant(filled: str, poor: str) -> None:
    """One after the other, until all are there; without a right on the archive nothing is lost."""
    do(filled, "drop table hanging")
    role = psycopg.conninfo.conninfo_to_dict(poor)["user"]
    granted = []
    for _ in range(8):
        with pytest.raises(ConfigurationError) as refused:
            await move(poor, sources())
        sentence = str(refused.value)
        if "run: " not in sentence:
            break
        granted.append(sentence.partition("run: ")[2])
        do(filled, granted[-1])
    assert granted == [
        f'grant select, delete, update on public.sources to "{role}"',
        (
            f'create schema if not exists archive; grant usage, create on schema archive to "{role}"; '
            f'alter table if exists "archive"."sources" owner to "{role}"'
        ),
    ]
    assert "permission denied for table relay_schedule" in sentence
    do(filled, f"grant select, insert, update, delete on relay_schedule to {role}")
    assert (await move(poor, sources())).moved == 9


async def test_children_that_a_policy_hides_from_the_role_are_told(filled: str) -> None:
    """Postgres removes them by a cascade all the same, and nobody would archive them."""
    name = f"mover_{uuid4().hex[:12]}"
    do(
        filled,
        f"create role {name} login password 'poor'",
        "create table notes (id bigint primary key, source_id bigint references sources on delete cascade, "
        "made timestamptz not null)",
        "create index on notes (source_id)",
        "insert into notes select id, id, at from sources",
        "alter table notes enable row level security",
        "create policy odd on notes using (id % 2 = 1)",
        "drop table hanging",
        "create schema archive",
        f"grant all on all tables in schema public to {name}; grant all on schema archive to {name}",
    )
    try:
        url = make_conninfo(filled, user=name, password="poor")  # noqa: S106 -- of a role that lives as long as a test
        with pytest.raises(ConfigurationError, match=rf"policies of public.notes .*{name}"):
            await move(url, sources(children=(Child("notes", "source_id", "made"),)))
        assert asked(filled, "select count(*) from notes") == [9]
    finally:
        do(filled, f"drop owned by {name}", f"drop role {name}")
