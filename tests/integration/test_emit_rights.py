"""With whose rights outbox_emit acts: those who could emit still can, nobody else can, nor have it run their own."""

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import errors as pg

from relay import EmitError, emit
from relay.outbox import grants, schema
from relay.outbox.grants import Grantee
from relay.outbox.grants import Role as GrantedRole
from tests.support.commands import ROOT
from tests.support.outbox import count, event

DEFINER = 5
COULD_EMIT = "grant insert on outbox_events to {}; grant select (id, event_id, dedup_key) on outbox_events to {}"
WRITTEN = (
    "event_id, event_type, aggregate_type, aggregate_id, topic, ordering_key, dedup_key, payload, attributes, "
    "available_at"
)
Role = Callable[[str], str]


@pytest.fixture
def owner(bare_database: str) -> Iterator[psycopg.Connection[Any]]:
    """The owner's connection to the schema before outbox_emit acted with its rights."""
    with psycopg.connect(bare_database, autocommit=True) as connection:
        migrate(connection, DEFINER - 1)
        yield connection


@pytest.fixture
def role(owner: psycopg.Connection[Any]) -> Iterator[Role]:
    """Makes a role with rights; `{}` is its name."""
    made = []

    def make(rights: str) -> str:
        name = f"Role {uuid4().hex}"
        owner.execute(f'create role "{name}"'.encode())
        made.append(name)
        owner.execute(rights.replace("{}", f'"{name}"').encode())
        return name

    yield make
    owner.execute("reset role")
    for name in made:
        owner.execute(f'drop owned by "{name}" cascade'.encode())
        owner.execute(f'drop role "{name}"'.encode())


def migrate(connection: psycopg.Connection[Any], version: int) -> None:
    """Step to a version, in either direction."""
    schema.migrate(connection, "public", version)


def can_emit(connection: psycopg.Connection[Any], name: str) -> bool:
    """Whether a role stores an event by itself."""
    try:
        with connection.transaction(force_rollback=True):
            connection.execute(f'set local role "{name}"'.encode())
            return emit(connection, event(ordering_key="k", dedup_key="d")).inserted
    except EmitError:
        return False


def may(connection: psycopg.Connection[Any], name: str, right: str) -> bool:
    """Whether a role has a right to outbox_emit."""
    row = connection.execute(
        "select has_function_privilege(%s::name, 'outbox_emit(jsonb)', %s)", (name, right)
    ).fetchone()
    return bool(row and row[0])


@pytest.mark.parametrize(
    ("rights", "could"),
    [
        (COULD_EMIT, True),
        (f"grant insert ({WRITTEN}), select (id, event_id, dedup_key) on outbox_events to {{}}", True),
        ("grant all on outbox_events to {}", True),
        (f"{COULD_EMIT}; grant execute on function outbox_emit(jsonb) to {{}}", True),
        ("grant execute on all functions in schema public to {} with grant option", False),
        ("grant insert (topic), select on outbox_events to {}", False),
        ("grant select, update, delete on outbox_events to {}", False),
        ("", False),
    ],
)
def test_those_who_could_emit_still_can_and_nobody_else(
    owner: psycopg.Connection[Any], role: Role, rights: str, *, could: bool
) -> None:
    """Over the migration, back, and over it again: a right on the function alone was none to emit."""
    name = role(rights)
    assert can_emit(owner, name) is could
    for version in (DEFINER, DEFINER - 1, DEFINER):
        migrate(owner, version)
        assert can_emit(owner, name) is could, version


def test_what_everybody_could_everybody_still_can(owner: psycopg.Connection[Any], role: Role) -> None:
    """Where the table takes rows of everyone, so does the function."""
    name = role("grant insert, select on outbox_events to public")
    for version in (DEFINER, DEFINER - 1, DEFINER):
        migrate(owner, version)
        assert can_emit(owner, name), version


def test_a_member_emits_by_its_group(owner: psycopg.Connection[Any], role: Role) -> None:
    """As it did."""
    group = role(COULD_EMIT)
    member = role(f'grant "{group}" to {{}}')
    migrate(owner, DEFINER)
    assert can_emit(owner, member)


def test_who_could_let_others_emit_still_can(owner: psycopg.Connection[Any], role: Role) -> None:
    """The grant option goes over, and what was granted by it as well; what was granted on the function alone ends."""
    first = role("grant insert on outbox_events to {} with grant option; grant select on outbox_events to {}")
    other = role("grant execute on function outbox_emit(jsonb) to {} with grant option")
    third = role("grant select on outbox_events to {}")
    fourth = role("")
    owner.execute(f'set role "{first}"; grant insert on outbox_events to "{third}"; reset role'.encode())
    owner.execute(
        f'set role "{other}"; grant execute on function outbox_emit(jsonb) to "{fourth}"; reset role'.encode()
    )

    migrate(owner, DEFINER)

    assert may(owner, first, "execute with grant option")
    assert can_emit(owner, third)
    assert not may(owner, third, "execute with grant option")
    assert not may(owner, other, "execute")
    assert not may(owner, fourth, "execute")


def test_roles_that_were_made_emitters_emit_on_the_older_schema(owner: psycopg.Connection[Any], role: Role) -> None:
    """A step back must not end the services of the release that steps back."""
    migrate(owner, DEFINER)
    name = role("grant execute on function outbox_emit(jsonb) to {}")
    assert can_emit(owner, name)
    migrate(owner, DEFINER - 1)
    assert can_emit(owner, name)


def test_an_emitter_of_the_older_schema_goes_on_without_its_rights_on_the_table(
    owner: psycopg.Connection[Any], role: Role
) -> None:
    """They are left to it over the way up, and again over the way back; deploy.md has what takes them."""
    name = role(COULD_EMIT)
    for version in (DEFINER, DEFINER - 1, DEFINER):
        migrate(owner, version)
    (taken,) = [
        line.strip()
        for line in (ROOT / "docs/deploy.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("    revoke insert")
    ]

    owner.execute(taken.replace("from shop;", f'from "{name}"').encode())

    for right in ("insert", "select"):
        rights = owner.execute("select has_any_column_privilege(%s::name, 'outbox_events', %s)", (name, right))
        assert rights.fetchall() == [(False,)], right
    assert can_emit(owner, name)


def test_a_function_of_another_owner_becomes_the_tables_owners(owner: psycopg.Connection[Any], role: Role) -> None:
    """It would act with the rights of a role that may have none on the table."""
    name, other = role(COULD_EMIT), role("grant usage, create on schema public to {}")
    owner.execute(f'alter function outbox_emit(jsonb) owner to "{other}"'.encode())
    migrate(owner, DEFINER)
    assert can_emit(owner, name)
    assert not may(owner, other, "execute")


def test_the_newest_function_is_for_those_alone_who_were_let_in(owner: psycopg.Connection[Any], role: Role) -> None:
    """A function that a migration drops and makes anew would be everybody's, and act with its caller's rights."""
    emitter, other = role(COULD_EMIT), role("grant select on outbox_events to {}")
    migrate(owner, schema.newest())
    owner.execute(f'revoke all on outbox_events from "{emitter}"'.encode())
    assert can_emit(owner, emitter)
    assert not can_emit(owner, other)


def test_a_superuser_migrates_for_the_owner_of_the_outbox(owner: psycopg.Connection[Any], role: Role) -> None:
    """All that outbox_emit calls becomes that one's, who can grant and step back, whatever others may execute."""
    migrate(owner, 0)
    theirs = role("grant usage, create on schema public to {}")
    emitter = role("grant usage on schema public to {}")
    owner.execute(f'set role "{theirs}"'.encode())
    migrate(owner, DEFINER - 1)
    owner.execute("reset role; alter default privileges revoke execute on functions from public")
    migrate(owner, schema.newest())

    owner.execute(f'set role "{theirs}"'.encode())
    grants.apply(owner, "public", [Grantee(GrantedRole.EMITTER, emitter)])
    owner.execute("reset role")
    assert can_emit(owner, emitter)
    owner.execute(f'set role "{theirs}"'.encode())
    migrate(owner, 0)


HOSTILE = """
    create schema hostile;
    set search_path to hostile, pg_temp, public, pg_catalog;
    create table hostile.outbox_events (
        id bigint generated always as identity, event_id uuid, event_type text, aggregate_type text, aggregate_id text,
        topic text, ordering_key text, dedup_key text, payload jsonb, attributes jsonb, available_at timestamptz);
    create temp table outbox_events (like hostile.outbox_events including all);
    create function hostile.caught() returns text language plpgsql as $$
        begin raise exception 'hostile code ran as %', current_user; end $$;
    create function hostile.outbox_fault(jsonb) returns text language sql as 'select hostile.caught()';
    create function hostile.outbox_refuse(bigint, text) returns boolean language sql
        as 'select hostile.caught() is null';
    create function hostile.outbox_uuid7(timestamptz) returns uuid language sql as 'select hostile.caught()::uuid';
    create function hostile.outbox_size(jsonb, jsonb, text, text, text, text) returns integer language sql
        as 'select hostile.caught()::integer';
    create function hostile.clock_timestamp() returns timestamptz language sql
        as 'select hostile.caught()::timestamptz';
    create function hostile.jsonb_typeof(jsonb) returns text language sql as 'select hostile.caught()';
    create function hostile.format(text, bigint, text) returns text language sql as 'select hostile.caught()';
    create function hostile.equal(text, text) returns boolean language sql as 'select hostile.caught() is null';
    create operator hostile.= (leftarg = text, rightarg = text, function = hostile.equal);
    create function pg_temp.outbox_fault(jsonb) returns text language sql as 'select hostile.caught()';
    create function pg_temp.outbox_uuid7(timestamptz) returns uuid language sql as 'select hostile.caught()::uuid';
    create type pg_temp.timestamptz as (hostile integer);
    create domain pg_temp.uuid as text check (hostile.caught() is null);
"""


def test_nothing_of_the_callers_is_run_or_written_to(
    owner: psycopg.Connection[Any], role: Role, bare_database: str
) -> None:
    """Whatever its search_path and its temporary schema hold: the row is in the outbox, and none of it has run."""
    migrate(owner, schema.newest())
    hosting = f'grant create, temporary on database "{owner.info.dbname}" to {{}}'
    name = role(f"grant execute on function outbox_emit(jsonb) to {{}}; {hosting}")
    owner.execute(f'set role "{name}"'.encode())
    owner.execute(HOSTILE.encode())
    stored = owner.execute(
        """
        select sequence from public.outbox_emit(
            '[{"event_type": "a", "aggregate_type": "a", "aggregate_id": "1", "data": {}, "ordering_key": "k"},
              {"event_type": "a", "aggregate_type": "a", "aggregate_id": "2", "data": {}, "dedup_key": "d",
               "occurred_at": "2024-01-01T00:00:00Z", "available_at": "2024-01-01T00:00:00Z"},
              {"event_type": "a", "aggregate_type": "a", "aggregate_id": "3", "data": {}, "dedup_key": "d"}]')"""
    ).fetchall()
    with pytest.raises(pg.InvalidParameterValue, match="has no data"):
        owner.execute("""select public.outbox_emit('[{"event_type": "a"}, {}]')""")
    for elsewhere in ("hostile.outbox_events", "pg_temp.outbox_events"):
        assert owner.execute(f"select from {elsewhere}".encode()).fetchall() == []
    owner.execute("reset role; reset search_path")

    assert len(stored) == 3
    assert count(bare_database) == 2


# Each is a better match for a call of the function than Postgres' own, by the rules for literals and variadic ones.
IN_THE_SCHEMA = """
    set search_path to public, pg_temp;
    create function caught() returns text language plpgsql as $$
        begin raise exception 'hostile code ran as %', current_user; end $$;
    create function format(text, text) returns text language sql as 'select caught()';
    create function format(text, bigint, text) returns text language sql as 'select caught()';
    create function jsonb_build_object(text, uuid, text, jsonb, text, jsonb, text, text, text, jsonb, text, jsonb)
        returns jsonb language sql as 'select caught()::jsonb';
    create function said(jsonb, jsonb) returns text language sql as 'select caught()';
    create operator ->> (leftarg = jsonb, rightarg = jsonb, function = said);
    create function inside(jsonb, jsonb) returns jsonb language sql as 'select caught()::jsonb';
    create operator -> (leftarg = jsonb, rightarg = jsonb, function = inside);
    create function has(jsonb, jsonb) returns boolean language sql as 'select caught() is null';
    create operator ? (leftarg = jsonb, rightarg = jsonb, function = has);
"""
EMITS = [
    '[{"event_type": "a", "aggregate_type": "a", "aggregate_id": "1", "data": {}, "ordering_key": "k"}]',
    """[{"event_type": "a", "aggregate_type": "a", "aggregate_id": "2", "data": {}, "dedup_key": "d",
         "attributes": {"tenant": "t"}, "actor": {"type": "user", "id": "1"}, "occurred_at": "2024-01-01T00:00:00Z"},
        {"event_type": "a", "aggregate_type": "a", "aggregate_id": "3", "data": {}, "dedup_key": "d"}]""",
]


def test_nothing_that_others_made_in_the_schema_is_run(
    owner: psycopg.Connection[Any], role: Role, bare_database: str
) -> None:
    """As in a `public` where everyone may create: what they made would run with the rights of the owner."""
    migrate(owner, DEFINER)
    name = role("grant execute on function outbox_emit(jsonb) to {}; grant create, usage on schema public to {}")
    owner.execute(f'set role "{name}"'.encode())
    owner.execute(IN_THE_SCHEMA.encode())
    for events in EMITS:
        owner.execute("select pg_catalog.count(*) from public.outbox_emit(%s::jsonb)", (events,))
    for refused, words in (("{}", "takes an array of events, not object"), ('[{"b": 1}]', "has the unknown field b")):
        with pytest.raises(pg.InvalidParameterValue, match=words):
            owner.execute("select public.outbox_emit(%s::jsonb)", (refused,))
    owner.execute("reset role; reset search_path")

    assert count(bare_database) == 2


# What a function declares is looked up once a session, by the search_path of whoever has it compiled.
COMPILED_BEFORE = """
    create schema hostile;
    create function hostile.caught(text) returns boolean language plpgsql as $$
        begin raise exception 'hostile code ran as %', current_user; end $$;
    create domain hostile.text as pg_catalog.text check (hostile.caught(value::pg_catalog.text));
    create domain hostile.jsonb as pg_catalog.jsonb check (hostile.caught(value::pg_catalog.text));
    create domain hostile.timestamptz as pg_catalog.timestamptz check (hostile.caught(value::pg_catalog.text));
    create type hostile.record as (
        event_id hostile.timestamptz, id hostile.timestamptz, dedup_key hostile.timestamptz);
    set search_path to hostile, pg_catalog, pg_temp;
"""


def test_types_of_the_callers_are_not_compiled_in(
    owner: psycopg.Connection[Any], role: Role, bare_database: str
) -> None:
    """A function that the caller has compiled before outbox_emit calls it knows no type but those of Postgres."""
    migrate(owner, DEFINER)
    hosting = f'grant create on database "{owner.info.dbname}" to {{}}'
    name = role(f"grant execute on function outbox_emit(jsonb) to {{}}; {hosting}")
    functions = owner.execute(
        "select pg_proc.oid from pg_proc join pg_language on pg_language.oid = prolang "
        "where lanname = 'plpgsql' and proname like 'outbox%' and prorettype <> 'trigger'::regtype"
    ).fetchall()
    owner.execute(f'set role "{name}"'.encode())
    owner.execute(COMPILED_BEFORE.encode())
    for function in functions:
        owner.execute("select plpgsql_validator(%s::oid)", function)
    for events in EMITS:
        owner.execute("select pg_catalog.count(*) from public.outbox_emit(%s::pg_catalog.jsonb)", (events,))
    owner.execute("reset role; reset search_path")

    assert count(bare_database) == 2
