"""The schema: its steps in both directions, who may take them when, and what the table itself refuses."""

import asyncio
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import errors as pg
from psycopg import sql

from consumers.inbox.schema import INBOX
from relay import emit
from relay.brokers.pubsub_reader import Received, Source
from relay.dev.account import postgres_account
from relay.dev.postgres import SETTINGS, USER, EmbeddedPostgres, config_text
from relay.dev.sandbox import Sandbox
from relay.dev.stack import Stack
from relay.errors import ConfigurationError, MigrationError, SchemaError
from relay.kernel.runner import Budget
from relay.operate.audit import AuditedOutbox, audit
from relay.outbox import schema, script
from relay.outbox.outbox import Outbox
from relay.postgres.connect import connect, connect_async
from relay.postgres.schema import Versions
from relay.postgres.script import Script
from relay.publisher.publisher import Publisher
from relay.routes import Routes
from relay.testing.databases import fresh_database
from tests.support.brokers import BrokerInHand
from tests.support.outbox import event
from tests.support.policies import policy
from tests.support.portrait import portrait
from tests.support.waiting import until

NEWEST = schema.newest()


def waits(url: str, pid: int, kind: str) -> bool:
    """Whether the session waits for a lock of that kind."""
    with psycopg.connect(url) as connection:
        found = connection.execute(
            "select 1 from pg_locks where pid = %s and locktype = %s and not granted", (pid, kind)
        ).fetchone()
    return found is not None


class InstalledPostgres(EmbeddedPostgres):
    """The embedded server's launcher, with programs that this machine has installed."""

    def __init__(self, sandbox: Sandbox, programs: Path) -> None:
        super().__init__(sandbox)
        self._programs = programs
        known = {name: SETTINGS[name] for name in ("listen_addresses", "unix_socket_directories", "timezone")}
        self._config.write_text(config_text(known, self.data))

    def _initdb(self) -> Sequence[str | Path]:
        return (
            self._programs / "initdb",
            *("-D", self.data),
            *("-U", USER),
            "--auth=scram-sha-256",
            f"--pwfile={self._password_file()}",
            *("--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions"),
        )


def _installed() -> list[Path]:
    """Folders with servers: on PATH, and where Debian keeps one for each version."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else []
    folders += Path("/usr/lib/postgresql").glob("*/bin")
    return sorted({folder for folder in folders if (folder / "postgres").exists() and (folder / "initdb").exists()})


@pytest.fixture(scope="module", params=[*_installed(), None], ids=lambda folder: str(folder or "given"))
def any_server(request: pytest.FixtureRequest, stack: Stack) -> Iterator[str]:
    """The URL of the session's server, and of every installed version."""
    if request.param is None:
        yield stack.database_url
        return
    with Sandbox(postgres_account()) as sandbox:
        server = InstalledPostgres(sandbox, request.param)
        server.start()
        yield server.url


@pytest.fixture
def connection(bare_database: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection to a database without an outbox."""
    with psycopg.connect(bare_database) as opened:
        yield opened


@pytest.mark.slow("starts another Postgres")
def test_every_version_of_postgres_takes_every_step_and_emits(any_server: str) -> None:
    """Nothing in the SQL is newer than the oldest version that is supported."""
    with fresh_database(any_server) as url, psycopg.connect(url) as connection:
        for target in (NEWEST, 0, *range(1, NEWEST + 1)):
            schema.migrate(connection, "public", target)
        plain, ordered, keyed = emit(
            connection,
            [
                event(attributes={"tenant": "acme"}, occurred_at="2024-02-29T00:00:00+01:00"),
                event(ordering_key="k"),
                event(dedup_key="d", available_at="2030-01-01T00:00:00Z", actor={"type": "user", "id": "7"}),
            ],
        )
        assert plain.sequence < ordered.sequence < keyed.sequence
        assert emit(connection, event(dedup_key="d")).event_id == keyed.event_id
        with pytest.raises(pg.InvalidParameterValue, match="event 0 occurred_at 2023-02-29T00:00:00Z is not"):
            connection.execute(
                """select outbox_emit('[{"event_type": "a", "aggregate_type": "b", "aggregate_id": "c", "data": 1,
                                         "occurred_at": "2023-02-29T00:00:00Z"}]')"""
            )


def test_every_version_of_postgres_takes_the_printed_steps(any_server: str) -> None:
    """One by one and all at once, there and back."""
    with fresh_database(any_server) as url, psycopg.connect(url, autocommit=True) as connection:
        for statement in (
            script.between("public", 0, NEWEST),
            script.down("public", 0),
            *(script.one_up("public", version) for version in range(1, NEWEST + 1)),
            script.between("public", NEWEST, 0),
            script.up("public", NEWEST),
        ):
            connection.execute(statement.encode())
        assert schema.migrate(connection, "public", NEWEST) == []


def test_every_version_of_postgres_takes_every_step_of_the_inbox(any_server: str) -> None:
    """There and back, as it is migrated and as it is printed."""
    inboxes, printed = Versions(INBOX), Script(INBOX)
    with fresh_database(any_server) as url, psycopg.connect(url, autocommit=True) as connection:
        for target in (INBOX.newest(), 0, *range(1, INBOX.newest() + 1), 0):
            inboxes.migrate(connection, "public", target)
        for statement in (printed.up("public", INBOX.newest()), printed.down("public", 0)):
            connection.execute(statement.encode())
        assert portrait(connection) == []


class ReaderInHand:
    """A subscription that got what the broker took."""

    def __init__(self, broker: BrokerInHand) -> None:
        messages = [message for _, taken in broker.requests for message in taken]
        self._waiting = [
            Received("", str(n), message.ordering_key, message.attributes, message.body)
            for n, message in enumerate(messages)
        ]

    async def source(self) -> Source:
        """Answer like a subscription without order."""
        return Source("projects/p/subscriptions/s", "projects/p/topics/orders", ordered=False)

    async def next(self, _: float) -> Sequence[Received]:
        """Return everything at once."""
        taken, self._waiting = self._waiting, []
        return taken

    async def acknowledge(self, _: Sequence[Received]) -> None:
        """Nothing comes again."""


async def test_every_version_of_postgres_is_relayed_and_audited(any_server: str) -> None:
    """Nor is anything newer in what the relay asks: claims of both kinds, both ways to settle, the audit's rows."""
    with fresh_database(any_server) as url:
        with psycopg.connect(url) as connection:
            schema.migrate(connection, "public", NEWEST)
            emit(connection, [event(1), event(2, available_at="2024-01-01T00:00:00Z"), event(3)])
            connection.execute("""update outbox_events set attributes = '{"goog": "x"}' where aggregate_id = '3'""")

        broker = BrokerInHand()
        publisher = Publisher(
            Outbox(lambda: connect_async(url), "public", 20_000),
            broker,
            policy(batch_size=10, routes=Routes("orders")),
            lambda _: None,
        )
        clock = asyncio.get_running_loop().time
        try:
            report = await publisher.run_once(Budget(clock() + 30.0, clock, asyncio.Event()))
        finally:
            await publisher.close()
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as auditing:
            audited = AuditedOutbox(auditing, "public", "p", Routes("orders"))
            found = await audit(ReaderInHand(broker), audited, quiet=0.0)

    assert (report.updated, report.errors) == (2, 1)
    assert (found.expected, found.messages, found.failed, found.faults) == (2, 2, 1, {})


def test_the_way_up_and_down_leaves_nothing_behind(connection: psycopg.Connection[Any]) -> None:
    """Every step has a way back, the table of versions included."""
    before = portrait(connection)

    up = schema.migrate(connection, "public", NEWEST)
    assert portrait(connection) != before
    down = schema.migrate(connection, "public", 0)

    assert [step.migration.version for step in up] == list(range(1, NEWEST + 1))
    assert [step.migration for step in down] == [step.migration for step in reversed(up)]
    assert portrait(connection) == before


def test_each_step_alone_is_undone_by_its_down(connection: psycopg.Connection[Any]) -> None:
    """A release can be taken back without taking back all before it."""
    for target in range(1, NEWEST + 1):
        schema.migrate(connection, "public", target - 1)
        before = portrait(connection)
        schema.migrate(connection, "public", target)
        if target > 1:
            schema.migrate(connection, "public", target - 1)
            assert portrait(connection) == before
            schema.migrate(connection, "public", target)
    assert schema.version(connection, "public") == NEWEST


def test_the_newest_schema_is_left_alone(connection: psycopg.Connection[Any]) -> None:
    """Every start of every replica may call it."""
    schema.migrate(connection, "public", NEWEST)
    before = portrait(connection)

    assert schema.migrate(connection, "public", NEWEST) == []
    assert portrait(connection) == before


def test_the_script_makes_what_migrate_makes(stack: Stack, bare_database: str) -> None:
    """Whoever lets only psql change the schema gets the same one, the record of its version included."""
    recorded = "select version, name from outbox_migrations order by version"
    with (
        fresh_database(stack.database_url) as url,
        psycopg.connect(bare_database) as migrated,
        psycopg.connect(url) as scripted,
    ):
        schema.migrate(migrated, "public", NEWEST)
        scripted.execute(script.between("public", 0, NEWEST).encode())
        scripted.commit()

        assert portrait(scripted) == portrait(migrated)
        assert scripted.execute(recorded).fetchall() == migrated.execute(recorded).fetchall()
        assert schema.migrate(scripted, "public", NEWEST) == []


def test_a_transaction_in_the_way_ends_the_migration_in_words(
    connection: psycopg.Connection[Any], bare_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting on would queue all traffic up behind the migration."""
    monkeypatch.setattr("relay.postgres.schema.LOCK_TIMEOUT", "50ms")
    schema.migrate(connection, "public", NEWEST)
    connection.commit()
    before = portrait(connection)

    with psycopg.connect(bare_database) as other:
        other.execute("lock table outbox_events in access share mode")
        with pytest.raises(MigrationError, match="did not end in time; nothing was changed") as refused:
            schema.migrate(connection, "public", 0)

    assert "pg_stat_activity" in str(refused.value)
    assert portrait(connection) == before


def test_a_start_waits_only_so_long_for_another_one(
    connection: psycopg.Connection[Any], bare_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A migration left open in some terminal must not hang every deploy."""
    monkeypatch.setattr("relay.postgres.schema.MIGRATION_TIMEOUT", "50ms")

    with psycopg.connect(bare_database) as other:
        other.execute("select pg_advisory_xact_lock(%s, %s)", schema.MIGRATION_LOCK)
        with pytest.raises(MigrationError, match="did not end in time"):
            schema.migrate(connection, "public", NEWEST)


@pytest.mark.parametrize(
    ("change", "goes"),
    [
        ("attempt_count = 3", False),
        ("published_at = now(), message_id = '1'", True),
        ("failed_at = now(), failure_reason = 'max_attempts'", False),
        ("failed_at = now(), failure_reason = 'discarded'", True),
    ],
)
def test_the_table_goes_only_when_every_event_went(
    connection: psycopg.Connection[Any], change: str, *, goes: bool
) -> None:
    """What was promised is never dropped; what was published or discarded holds nothing up."""
    schema.migrate(connection, "public", NEWEST)
    emit(connection, event())
    connection.execute(f"update outbox_events set {change}".encode())  # noqa: S608 -- a test's own words
    connection.commit()

    if goes:
        assert schema.migrate(connection, "public", 0)
        return
    with pytest.raises(MigrationError, match=r"still holds 1 event\(s\) that were not published\. Let the relay drain"):
        schema.migrate(connection, "public", 0)
    assert schema.version(connection, "public") == NEWEST


def test_an_event_that_commits_while_the_table_is_about_to_go_is_seen(
    connection: psycopg.Connection[Any], bare_database: str
) -> None:
    """The way down waits for open emits, and then counts them."""
    schema.migrate(connection, "public", NEWEST)
    connection.commit()

    with psycopg.connect(bare_database) as other, ThreadPoolExecutor(1) as thread:
        emit(other, event())
        down = thread.submit(schema.migrate, connection, "public", 0)
        until(lambda: waits(bare_database, connection.info.backend_pid, "relation"), "migrate waits for the table")
        other.commit()
        with pytest.raises(MigrationError, match="still holds 1 event"):
            down.result()


def test_a_schema_of_a_later_release_is_refused(connection: psycopg.Connection[Any]) -> None:
    """Old code must not work on, nor step back, what it does not know."""
    schema.migrate(connection, "public", NEWEST)
    connection.execute("insert into outbox_migrations (version, name) values (999, 'from_the_future')")
    connection.commit()

    for target in (NEWEST, 0):
        with pytest.raises(SchemaError, match=f"'public' is at version 999, newer than the {NEWEST} of this code"):
            schema.migrate(connection, "public", target)


def test_what_an_older_schema_cannot_hold_is_refused_in_words() -> None:
    """By whoever would write it."""
    with pytest.raises(SchemaError, match=f"a step needs version {NEWEST} of schema 'public', which is at "):
        schema.refuse_older(NEWEST - 1, "public", NEWEST, "a step")
    schema.refuse_older(NEWEST, "public", NEWEST, "a step")


async def test_the_relay_refuses_a_schema_that_is_two_versions_apart(bare_database: str) -> None:
    """It would fail row by row instead."""
    async with await psycopg.AsyncConnection.connect(bare_database, autocommit=True) as connection:

        async def required() -> int:
            return await schema.require(connection, "public")

        with pytest.raises(SchemaError, match="has no outbox in schema 'public'; create it with"):
            await required()
        with pytest.raises(
            SchemaError, match="has no schema 'publik', which RELAY_SCHEMA names; correct the name there"
        ):
            await schema.require(connection, "publik")
        with psycopg.connect(bare_database) as migrating:
            schema.migrate(migrating, "public", NEWEST - 2)
        with pytest.raises(SchemaError, match=f"is at version {NEWEST - 2}, this code works on {NEWEST - 1} to"):
            await required()
        for version in (NEWEST - 1, NEWEST):
            with psycopg.connect(bare_database) as migrating:
                schema.migrate(migrating, "public", version)
            assert await required() == version
        await connection.execute("insert into outbox_migrations (version, name) values (999, 'later')")
        with pytest.raises(SchemaError, match="newer than"):
            await required()


@pytest.mark.parametrize("target", [-1, NEWEST + 1, 99])
def test_a_version_that_does_not_exist_is_refused(connection: psycopg.Connection[Any], target: int) -> None:
    """A typing error must not drop the outbox."""
    with pytest.raises(ConfigurationError, match=f"no schema version {target}; this code knows 0 to {NEWEST}"):
        schema.migrate(connection, "public", target)


@pytest.mark.parametrize("name", ["outbox", 'Odd "schema"; --', "with.dot", "ends$$ a $_$ body"])
def test_the_outbox_lives_in_any_schema(connection: psycopg.Connection[Any], name: str) -> None:
    """Its function finds its table whatever the caller's search_path says, and never through a temporary table."""
    connection.execute(sql.SQL("create schema {}").format(sql.Identifier(name)))
    public = portrait(connection)
    schema.migrate(connection, name, NEWEST)

    connection.execute("create temporary table outbox_events (like pg_class)")
    connection.execute(sql.SQL("set search_path to pg_temp, public, {}").format(sql.Identifier(name)))
    emitted = emit(connection, event(ordering_key="k", attributes={"a": "b"}))

    stored = connection.execute(sql.SQL("select event_id from {}").format(sql.Identifier(name, "outbox_events")))
    assert stored.fetchall() == [(emitted.event_id,)]
    schema_only = [entry for entry in portrait(connection) if entry[0] in {"relation", "function"}]
    assert schema_only == [entry for entry in public if entry[0] in {"relation", "function"}]


@pytest.mark.parametrize("attempt", [schema.plan, schema.migrate])
def test_a_schema_that_is_missing_is_refused(connection: psycopg.Connection[Any], attempt: Any) -> None:
    """It is not made on the quiet: who owns it is the administrator's choice. The plan says so as well."""
    with pytest.raises(SchemaError, match="has no schema 'missing'; create it, or name another one in RELAY_SCHEMA"):
        attempt(connection, "missing", NEWEST)


@contextmanager
def _role(url: str) -> Iterator[str]:
    with psycopg.connect(url, autocommit=True) as connection:
        name = f"role_{connection.info.dbname}"
        connection.execute(sql.SQL("create role {}").format(sql.Identifier(name)))
        try:
            yield name
        finally:
            connection.execute(sql.SQL("drop owned by {}").format(sql.Identifier(name)))
            connection.execute(sql.SQL("drop role {}").format(sql.Identifier(name)))


def test_a_role_without_the_right_is_told_which_one(connection: psycopg.Connection[Any], bare_database: str) -> None:
    """Since Postgres 15 nobody but its owner creates in public."""
    connection.execute("revoke create on schema public from public")
    connection.commit()
    with _role(bare_database) as name:
        connection.execute(sql.SQL("set role {}").format(sql.Identifier(name)))
        connection.commit()
        with pytest.raises(ConfigurationError, match="may not change schema 'public': permission denied for schema"):
            schema.migrate(connection, "public", NEWEST)


def test_a_service_emits_with_execute_alone(connection: psycopg.Connection[Any], bare_database: str) -> None:
    """The role of a service needs no right on the table and its sequence; on the older schema it had to."""
    schema.migrate(connection, "public", NEWEST)
    connection.commit()
    with _role(bare_database) as name:
        connection.execute(sql.SQL("grant execute on function outbox_emit to {}").format(sql.Identifier(name)))
        connection.execute(sql.SQL("set local role {}").format(sql.Identifier(name)))
        assert emit(connection, event(dedup_key="d", ordering_key="k")).inserted
        assert not emit(connection, event(dedup_key="d")).inserted
        connection.rollback()


_ID = "01900000-0000-7000-8000-000000000000"
_ENVELOPE = (
    f'{{"event_id": "{_ID}", "event_type": "a", "version": 1, "occurred_at": "2024-01-01T00:00:00Z",'
    ' "actor": null, "data": null}'
)


@pytest.mark.parametrize(
    ("column", "value", "constraint"),
    [
        ("event_type", "", "event_type"),
        ("event_type", "x" * 256, "event_type"),
        ("aggregate_type", "", "aggregate_type"),
        ("aggregate_id", "é" * 513, "aggregate_id"),
        ("topic", "", "topic"),
        ("ordering_key", "x" * 1_025, "ordering_key"),
        ("dedup_key", "", "dedup_key"),
        ("payload", "{}", "payload_is_an_envelope"),
        ("payload", "[]", "payload_is_an_envelope"),
        ("payload", "null", "payload_is_an_envelope"),
        ("payload", _ENVELOPE.replace('"event_type": "a"', '"event_type": "b"'), "payload_is_an_envelope"),
        ("payload", _ENVELOPE.replace(_ID, _ID.replace("8", "9")), "payload_is_an_envelope"),
        ("payload", _ENVELOPE.replace('"version": 1', '"version": "1"'), "payload_is_an_envelope"),
        ("payload", _ENVELOPE.replace('"actor": null', '"actor": "me"'), "payload_is_an_envelope"),
        ("payload", _ENVELOPE.replace(', "data": null', ""), "payload_is_an_envelope"),
        ("attributes", "[]", "attributes"),
        ("available_at", "infinity", "available_at"),
        ("created_at", "infinity", "created_at"),
        ("attempt_count", "-1", "attempt_count"),
        ("last_error", "x" * 1_025, "last_error"),
        ("last_error_code", "x" * 65, "last_error"),
        ("message_id", "1", "published"),
        ("published_at", "2024-01-01Z", "published"),
        ("failed_at", "2024-01-01Z", "failed"),
        ("failure_reason", "max_attempts", "failed"),
        ("blocks_key", "true", "failed"),
    ],
)
def test_the_table_refuses_what_the_relay_could_not_carry(
    database: str, column: str, value: str, constraint: str
) -> None:
    """A row written by hand has to keep the same promises; each column has its own check."""
    good = {
        "event_id": _ID,
        "event_type": "a",
        "aggregate_type": "b",
        "aggregate_id": "c",
        "payload": _ENVELOPE,
    }

    def insert(row: dict[str, str]) -> sql.Composed:
        return sql.SQL("insert into outbox_events ({}) values ({})").format(
            sql.SQL(", ").join(map(sql.Identifier, row)), sql.SQL(", ").join(map(sql.Literal, row.values()))
        )

    with psycopg.connect(database) as connection:
        connection.execute(insert(good))
        connection.rollback()
        with pytest.raises(pg.CheckViolation) as refused:
            connection.execute(insert({**good, column: value}))
        assert refused.value.diag.constraint_name == f"outbox_events_{constraint}"


def test_no_row_is_written_with_an_id_of_its_own(database: str) -> None:
    """Ids are drawn in order, by the database alone."""
    with psycopg.connect(database) as connection, pytest.raises(pg.GeneratedAlways):
        connection.execute("insert into outbox_events (id) values (1)")


def test_no_row_can_understate_its_size(database: str) -> None:
    """What a claim is bounded by is computed by the table, and computed again when the payload changes."""
    with psycopg.connect(database) as connection:
        emit(connection, event())
        (before,) = connection.execute("select size_bytes from outbox_events").fetchone() or (0,)
        connection.execute(
            "update outbox_events set payload = jsonb_set(payload, '{data}', to_jsonb(repeat('x', 5000)))"
        )
        (after,) = connection.execute("select size_bytes from outbox_events").fetchone() or (0,)
        assert after > before + 4_000
        with pytest.raises(pg.GeneratedAlways):
            connection.execute("update outbox_events set size_bytes = 1")


def test_a_database_of_another_encoding_is_refused(stack: Stack) -> None:
    """Its texts cannot hold every event, and have other sizes than the broker will see."""
    with (
        fresh_database(stack.database_url, "template0", "encoding 'SQL_ASCII' locale_provider libc locale 'C'") as url,
        pytest.raises(ConfigurationError, match="has the encoding SQL_ASCII"),
    ):
        connect(url)
