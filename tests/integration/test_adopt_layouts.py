"""Old tables of every shape: taken over as they are, or refused in words."""

from collections.abc import Sequence
from typing import Any

import psycopg
import pytest
from psycopg import errors as pg

from relay.adopt.mapping import Mapping, mapping
from relay.errors import ConfigurationError
from tests.support import old_outboxes as old

PLAIN = {"event_type": "'a.b'", "aggregate_type": "'a'", "aggregate_id": "n", "data": "to_jsonb(n)"}


def words(
    table: str, ids: Sequence[str], pending: str = "not sent", marks: Sequence[str] = ("sent=true",), **fields: str
) -> Mapping:
    """A mapping of a table with a number and a flag."""
    return mapping(table, ids, pending, marks, [f"{name}={text}" for name, text in {**PLAIN, **fields}.items()])


def numbers(url: str) -> list[Any]:
    """What was stored, in its order."""
    return [number for (number,) in old.rows_of(url, "select payload -> 'data' from outbox_events order by id")]


def left(url: str, table: str, pending: str = "not sent") -> int:
    """How many rows still wait."""
    ((found,),) = old.rows_of(url, f"select count(*) from {table} where {pending}")  # noqa: S608 -- a test's own words
    return int(found)


def test_a_partitioned_table_with_all_its_partitions(database: str) -> None:
    """Those of now and those to come, whether services name the table or a partition."""
    old.run(
        database,
        """
        create table parted (n int not null, day date not null, sent bool not null default false, primary key (day, n))
            partition by range (day);
        create table parted_1 partition of parted for values from ('2024-01-01') to ('2024-02-01');
        create table parted_2 partition of parted for values from ('2024-02-01') to ('2024-03-01');
        insert into parted (n, day) values (2, '2024-02-02'), (1, '2024-01-03'), (3, '2024-01-02')""",
    )
    read = words("parted", ["day", "n"])
    assert old.shadow(database, read).taken == 3
    assert old.adopted(database, read, batch=1, publisher_stopped=True).rows == 3
    old.run(
        database,
        """
        create table parted_3 partition of parted for values from ('2024-03-01') to ('2024-04-01');
        insert into parted (n, day) values (4, '2024-02-03'), (5, '2024-03-03');
        insert into parted_3 (n, day) values (6, '2024-03-04')""",
    )
    assert numbers(database) == [3, 1, 2, 4, 5, 6]
    assert left(database, "parted") == 0
    assert old.released(database, "parted")
    old.run(database, "insert into parted (n, day) values (7, '2024-03-05')")
    assert left(database, "parted") == 1


def test_names_that_need_quotes(database: str) -> None:
    """Of the schema, the table, its columns, and none that a statement of ours uses itself."""
    old.run(
        database,
        """
        create schema "Mein Shop";
        create table "Mein Shop"."adopt ""Events""{}" (
            "Id {}" int primary key, n int, "Sent?" bool not null default false, event text, pending text,
            sequence int);
        insert into "Mein Shop"."adopt ""Events""{}" values (1, 1, false, 'e', 'p', 3)""",
    )
    table = '"Mein Shop"."adopt ""Events""{}"'
    read = words(table, ["Id {}"], 'not "Sent?"', ['"Sent?"=true'], topic="event", dedup_key="pending")
    assert old.shadow(database, read).taken == 1
    assert old.adopted(database, read).rows == 1
    old.run(database, f"insert into {table} values (2, 2, false, 'e', 'q', 4)")  # noqa: S608 -- a test's own words
    assert numbers(database) == [1, 2]
    assert old.rows_of(database, "select topic, dedup_key from outbox_events order by id") == [("e", "p"), ("e", "q")]
    assert old.released(database, table)


@pytest.mark.parametrize("name", ["events", "adopt_row", "old", "new", "known", "e"])
def test_a_table_in_the_outboxes_own_schema(database: str, name: str) -> None:
    """Named without its schema, as the role would name it."""
    old.run(database, f"create table {name} (id serial primary key, n int, sent bool)")
    old.run(database, f"insert into {name} (n) values (1), (2)")  # noqa: S608 -- a test's own words
    old.adopted(database, words(name, ["id"], pending="sent is null"))
    old.run(database, f"insert into {name} (n) values (3)")  # noqa: S608 -- a test's own words
    assert numbers(database) == [1, 2, 3]


def test_ids_that_are_uuids_are_ordered_by_a_time_before_them(database: str) -> None:
    """A random one alone has no order of its own; together with a time they do."""
    old.run(
        database,
        """
        create table uuids (id uuid primary key default gen_random_uuid(), at timestamptz not null, n int, sent bool);
        create index on uuids (at, id);
        insert into uuids (at, n, sent) select '2024-01-01'::timestamptz + n * interval '1 us', n, false
          from generate_series(1, 700) as n""",
    )
    read = words("uuids", ["at", "id"])
    assert old.shadow(database, read).paged
    old.adopted(database, read, batch=30, publisher_stopped=True)
    assert numbers(database) == list(range(1, 701))
    alone = old.shadow(database, words("uuids", ["id"], ordering_key="'k'"))
    assert any("no order of its own" in each for each in alone.warnings)


def test_rows_that_are_deleted_when_they_are_sent(database: str) -> None:
    """The new ones too, before anybody sees them; a service that deletes them itself finds nothing to delete."""
    old.run(
        database,
        "create table gone (id int generated always as identity primary key, n int); "
        "insert into gone (n) values (1), (2)",
    )
    read = words("gone", ["id"], "true", ["delete"])
    assert old.shadow(database, read).taken == 2
    assert old.adopted(database, read).rows == 2
    with psycopg.connect(database) as connection:
        connection.execute("insert into gone (n) values (3) returning id")
        assert connection.execute("delete from gone").rowcount == 0
    assert numbers(database) == [1, 2, 3]
    assert left(database, "gone", "true") == 0


def test_columns_that_are_generated_are_there_for_the_mapping(database: str) -> None:
    """The trigger sees the row as it is stored, after everything that other triggers did to it before."""
    old.run(
        database,
        """
        create table made (id int generated always as identity primary key, n int, sent bool default false,
                           twice int generated always as (n * 2) stored);
        create function one_more() returns trigger language plpgsql as $$begin new.n := new.n + 1; return new; end$$;
        create trigger zzz before insert on made for each row execute function one_more()""",
    )
    old.adopted(database, words("made", ["id"], data="to_jsonb(twice)"))
    old.run(database, "insert into made (n) values (4)")
    assert numbers(database) == [10]
    with pytest.raises(ConfigurationError, match="--mark twice"):
        old.shadow(database, words("made", ["id"], marks=["twice=4"]))


def test_types_of_many_kinds_become_texts(database: str) -> None:
    """Numbers, UUIDs, enums, domains and blank-padded characters; times have their offset in every session."""
    old.run(
        database,
        """
        create type mood as enum ('fine'); create domain word as varchar(20);
        create table kinds (id uuid primary key, n numeric, sent bool default false, mood mood, word word, code char(9),
                            at timestamptz, headers json);
        set timezone to 'Asia/Kathmandu';
        insert into kinds values ('6f1f2f6e-0000-4000-8000-000000000001', 1.50, false, 'fine', 'w', 'c',
                                  '2024-01-31 12:00+02', '{"a": "b"}')""",
    )
    fields = {
        "event_id": "id", "event_type": "mood", "aggregate_type": "word", "ordering_key": "code", "occurred_at": "at",
        "attributes": "headers", "version": "3", "actor": "json_build_object('type', 'user', 'id', n::text)",
    }  # fmt: skip
    old.adopted(database, words("kinds", ["id"], **fields))
    stored = old.rows_of(
        database,
        "select event_id::text, event_type, aggregate_type, aggregate_id, ordering_key, attributes, "
        "payload - 'event_id' - 'event_type' from outbox_events",
    )
    envelope = {
        "version": 3,
        "occurred_at": "2024-01-31T10:00:00.000000Z",
        "actor": {"type": "user", "id": "1.50"},
        "data": 1.5,
    }
    assert stored == [("6f1f2f6e-0000-4000-8000-000000000001", "fine", "w", "1.50", "c", {"a": "b"}, envelope)]


def test_expressions_mean_the_same_in_every_session(database: str) -> None:
    """Times without their offset are read as the mapping says, whatever the zone of who inserts."""
    old.run(database, "create table zones (n int primary key, at timestamp not null, sent bool default false)")
    old.adopted(database, words("zones", ["n"], occurred_at="at at time zone 'UTC'", topic="(at::timestamptz)::text"))
    with psycopg.connect(database) as connection:
        connection.execute("set timezone to 'Asia/Kathmandu'; set datestyle to 'German'")
        connection.execute("insert into zones (n, at) values (1, '2024-01-31 12:00')")
    stored = old.rows_of(database, "select payload ->> 'occurred_at', topic from outbox_events")
    assert stored == [("2024-01-31T12:00:00.000000Z", "2024-01-31 12:00:00+00")]


@pytest.mark.parametrize(
    ("table", "ids", "sentence"),
    [
        ("create table t (n int, sent bool)", ["n"], "which may be null"),
        ("create table t (n int not null, sent bool)", ["n"], "does not tell the rows of public.t apart"),
        ("create table t (n int not null, sent bool); create unique index on t (n) where sent", ["n"], "apart"),
        ("create table t (n int not null, sent bool); create unique index on t ((n / 2))", ["n"], "apart"),
        ("create table t (n int, m int, sent bool, primary key (n, m))", ["n"], "apart"),
        ('create table t (n int primary key, sent bool, "100%" int)', ["n"], "a percent sign in its name"),
        ("create table t (n int unique deferrable initially deferred not null, sent bool)", ["n"], "apart"),
        ("create table t (n int primary key, sent bool); create table u () inherits (t)", ["n"], "inherit from it"),
        ("create view t as select 1 as n, false as sent", ["n"], "is no table"),
        ("create materialized view t as select 1 as n, false as sent", ["n"], "is no table"),
    ],
)
def test_a_table_whose_rows_cannot_be_told_apart_is_refused(
    database: str, table: str, ids: Sequence[str], sentence: str
) -> None:
    """Without a unique index on columns that are never null, no order could be kept and no row be marked."""
    old.run(database, table)
    with pytest.raises(ConfigurationError, match=sentence):
        old.shadow(database, words("t", ids))


def test_a_unique_index_does_where_there_is_no_primary_key(database: str) -> None:
    """Also one of fewer columns than those that order the rows."""
    old.run(
        database,
        "create table t (m int not null, n int not null unique, sent bool); insert into t values (2, 1), (1, 2)",
    )
    found = old.shadow(database, words("t", ["m", "n"], pending="sent is not true"))
    assert (found.taken, found.paged) == (2, False)
    old.adopted(database, words("t", ["m", "n"], pending="sent is not true"))
    assert numbers(database) == [2, 1]


def test_a_new_row_that_another_trigger_deletes_is_not_lost_in_silence(database: str) -> None:
    """The insert fails: nobody could tell what the event would have been."""
    old.run(
        database,
        """
        create table t (n int primary key, sent bool default false);
        create function swallow() returns trigger language plpgsql as $$begin delete from t; return null; end$$;
        create trigger a after insert on t for each row execute function swallow()""",
    )
    old.adopted(database, words("t", ["n"]))
    with pytest.raises(pg.ObjectNotInPrerequisiteState, match="is not to be seen; does another trigger delete it"):
        old.run(database, "insert into t values (1)")
