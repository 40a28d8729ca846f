"""The doctor on real servers: each thing well, and each thing broken."""

import socket
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pydantic import SecretStr

from relay import emit
from relay.cli.doctor import patient
from relay.dev.stack import PROJECT_ID, Stack
from relay.kernel.duration import parse
from relay.operate.doctor import Finding, doctor, examination, findings
from relay.outbox.grants import MARKED
from relay.settings import Settings
from relay.testing.databases import fresh_database
from tests.support.outbox import event
from tests.support.pubsub import Channel, PubSubSide

PASSWORD = "doctor"  # noqa: S105 -- of a role that lives for a test
Examine = Callable[..., Coroutine[Any, Any, dict[str, list[Finding]]]]


@pytest.fixture
def examine(stack: Stack, database: str, channel: Channel) -> Examine:
    """Run the doctor; the findings by check."""

    async def run(url: str = database, **changed: Any) -> dict[str, list[Finding]]:
        # Past the environment: a developer's .env must not reach the tests.
        settings = Settings.model_construct(
            **{
                "database_url": SecretStr(url),
                "pubsub_project_id": PROJECT_ID,
                "relay_topic": channel.topic,
                "pubsub_emulator_host": stack.pubsub_emulator_host,
                **changed,
            }
        )
        told: list[Finding] = []
        report = await doctor(patient(settings), told.append)
        assert report.findings == tuple(told)
        found: dict[str, list[Finding]] = {}
        for finding in told:
            found.setdefault(finding.check, []).append(finding)
        return found

    return run


def statuses(found: dict[str, list[Finding]], check: str) -> list[str]:
    """How a check stands."""
    return [finding.status.value for finding in found[check]]


def execute(url: str, *statements: str) -> None:
    """Break something, or mend it."""
    with psycopg.connect(url, autocommit=True) as owner:
        for statement in statements:
            owner.execute(statement.encode())


@contextmanager
def role(database: str, options: str = "") -> Iterator[str]:
    """A role with what a relay needs and nothing else; the database's URL as this role."""
    name = f"doctor_{uuid4().hex}"
    execute(
        database,
        f"create role {name} login password '{PASSWORD}' {options}",
        f"grant usage on schema public to {name}",
        f"grant select on outbox_events, outbox_migrations to {name}",
        f"grant update ({', '.join(MARKED)}) on outbox_events to {name}",
    )
    try:
        yield make_conninfo(database, user=name, password=PASSWORD)
    finally:
        execute(database, f"drop owned by {name}", f"drop role {name}")


async def test_where_everything_is_well_every_check_says_so(examine: Examine, database: str) -> None:
    """As the role of a relay, which sees less than a superuser."""
    with role(database) as url:
        found = await examine(url)

    assert {check: statuses(found, check) for check in found} == {check: ["ok"] for check in found}
    assert set(found) == {
        *("configuration", "database", "version", "encoding", "primary", "pooler", "clock", "connections", "timeouts"),
        *("old snapshots", "schema", "objects", "privileges", "outbox_emit", "identity", "vacuum", "queue", "takers"),
        *("wake-up", "credentials", "broker"),
    }


async def test_settings_that_a_start_refuses_fail(examine: Examine) -> None:
    """Each has the sentence of the start; the rest is looked at all the same."""
    found = await examine(relay_http="nowhere", relay_runners="publsh", relay_log_redact="no_such_module:hook")

    assert statuses(found, "configuration") == ["fail"] * 3
    for name in ("RELAY_HTTP", "RELAY_RUNNERS", "RELAY_LOG_REDACT"):
        assert any(name in finding.found for finding in found["configuration"])
    assert statuses(found, "schema") == ["ok"]


@pytest.mark.slow("waits for what never comes")
async def test_a_relay_that_would_not_be_woken_is_warned_of(examine: Examine, stack: Stack, template: str) -> None:
    """Another database takes LISTEN, as a pooler does, and hears nothing; a relay that polls has no need to hear."""
    with fresh_database(stack.database_url, template) as elsewhere:
        found = await examine(relay_listen_url=SecretStr(elsewhere))
    assert statuses(found, "wake-up") == ["warn"]
    assert "a transaction pooler is in between" in found["wake-up"][0].found
    assert "RELAY_LISTEN_URL" in found["wake-up"][0].remedy

    found = await examine(relay_notify=False)
    assert statuses(found, "wake-up") == ["ok"]


async def test_a_url_that_a_start_refuses_is_told_once(examine: Examine) -> None:
    """The relay would not poll: it would not start."""
    found = await examine(relay_listen_url=SecretStr("postgresql://u@127.0.0.1:99999/db"))
    assert ["RELAY_LISTEN_URL" in finding.found for finding in found["configuration"]] == [True]
    assert "wake-up" not in found


async def test_a_server_that_does_not_answer_a_listener_is_named(
    examine: Examine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check ends by itself, as a warning, before any check is ended as one that breaks."""
    monkeypatch.setattr(examination, "WAKE_UP_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        found = await examine(relay_listen_url=SecretStr(f"postgresql://u@127.0.0.1:{port}/db"))
    assert statuses(found, "wake-up") == ["warn"]
    assert f"127.0.0.1:{port}: no answer within 0.5 s" in found["wake-up"][0].found
    assert examination.WAKE_UP_SECONDS < findings.CHECK_SECONDS


async def test_without_its_database_the_broker_is_looked_at_all_the_same(examine: Examine) -> None:
    """One line says that the rest was not; no password is shown."""
    found = await examine("postgresql://u:hunter2@127.0.0.1:1/db")

    assert statuses(found, "database") == ["fail"]
    assert statuses(found, "broker") == ["ok"]
    assert "hunter2" not in str(found)
    assert "schema" not in found


async def test_a_database_of_another_encoding_is_a_finding(examine: Examine, stack: Stack) -> None:
    """The relay refuses to work there, and says why."""
    options = "encoding 'LATIN1' locale_provider libc locale 'C'"
    with fresh_database(stack.database_url, "template0", options) as url:
        found = await examine(url)

    assert "LATIN1" in found["database"][0].found


async def test_a_database_without_an_outbox_fails_with_the_remedy(examine: Examine, bare_database: str) -> None:
    """What rests on it says that it could not be looked at; the server's checks stand."""
    found = await examine(bare_database)

    assert statuses(found, "schema") == ["fail"]
    assert "python -m relay migrate" in str(found["schema"][0])
    assert statuses(found, "objects") == ["fail"]
    assert statuses(found, "privileges") == ["fail"]
    assert statuses(found, "version") == ["ok"]
    assert statuses(found, "broker") == ["ok"]


async def test_what_is_missing_or_broken_is_named(examine: Examine, database: str) -> None:
    """An index that was never finished is no index."""
    execute(database, "drop index outbox_events_fresh", "drop function outbox_emit(jsonb)")
    execute(database, "update pg_index set indisvalid = false where indexrelid = 'outbox_events_delayed'::regclass")
    found = await examine()

    missing, broken = found["objects"]
    assert "index outbox_events_fresh" in missing.found
    assert "function outbox_emit" in missing.found
    assert broken.found == "there and not in use: index outbox_events_delayed"


async def test_a_leftover_index_is_named(examine: Examine, database: str) -> None:
    """Of an operator's own, which costs every write and serves no one."""
    execute(
        database,
        "create index own on outbox_events (message_id)",
        "update pg_index set indisvalid = false where indexrelid = 'own'::regclass",
    )
    found = await examine()

    assert "index own" in found["objects"][0].found


@pytest.mark.parametrize(
    ("revoked", "named"),
    [
        ("select on outbox_migrations", "select on outbox_migrations"),
        ("select on outbox_events", "select on outbox_events"),
        ("update (published_at) on outbox_events", "update (published_at)"),
        ("usage on schema public", "usage on the schema"),
    ],
)
async def test_a_right_that_is_lacking_is_named(examine: Examine, database: str, revoked: str, named: str) -> None:
    """Exactly that one."""
    execute(database, "revoke all on schema public from public")
    with role(database) as url:
        name = conninfo_to_dict(url)["user"]
        execute(database, f"revoke {revoked} from {name}")
        found = await examine(url)

    assert statuses(found, "privileges") == ["fail"]
    assert named in found["privileges"][0].found


async def test_a_superuser_and_hidden_rows_are_warned_of(examine: Examine, database: str) -> None:
    """The one may too much, the other perhaps too little."""
    assert statuses(await examine(), "privileges") == ["warn"]
    execute(database, "alter table outbox_events enable row level security")
    with role(database) as url:
        found = await examine(url)
    assert "row level security" in found["privileges"][0].found


async def test_an_identity_behind_its_rows_fails(examine: Examine, database: str) -> None:
    """As after a restore that forgot the sequences; the remedy, as it stands, mends it."""
    with psycopg.connect(database) as owner:
        emit(owner, [event(1), event(2), event(3)])
    assert statuses(await examine(), "identity") == ["ok"]
    execute(database, "alter sequence outbox_events_id_seq restart with 1")

    found = await examine()
    assert statuses(found, "identity") == ["fail"]
    execute(database, found["identity"][0].remedy.removeprefix("move it: "))
    assert statuses(await examine(), "identity") == ["ok"]


async def test_a_cached_identity_fails(examine: Examine, database: str) -> None:
    """Its ids do not follow the order of insertion."""
    execute(database, "alter table outbox_events alter column id set cache 20")

    assert statuses(await examine(), "identity") == ["fail"]


async def test_autovacuum_off_for_the_table_fails(examine: Examine, database: str) -> None:
    """However it is written."""
    execute(database, "alter table outbox_events set (autovacuum_enabled = off)")
    assert statuses(await examine(), "vacuum") == ["fail"]

    execute(database, "alter table outbox_events reset (autovacuum_enabled)")
    assert statuses(await examine(), "vacuum") == ["ok"]


async def test_a_transaction_timeout_within_the_budget_fails(examine: Examine, database: str) -> None:
    """Set on the role, where nobody looks."""
    with psycopg.connect(database) as connection:
        if connection.info.server_version < 170_000:
            pytest.skip("Postgres 17 brought transaction_timeout")
    with role(database) as url:
        name = conninfo_to_dict(url)["user"]
        execute(database, f"alter role {name} set transaction_timeout = '10s'")
        assert statuses(await examine(url), "timeouts") == ["fail"]
        assert statuses(
            await examine(url, relay_publish_budget_ms=parse("5s"), relay_idle_tx_ms=parse("8s")), "timeouts"
        ) == ["ok"]


async def test_settings_of_the_role_are_seen_though_the_doctor_sets_its_own(examine: Examine, database: str) -> None:
    """What a session begins with, not what it has now."""
    with role(database) as url:
        name = conninfo_to_dict(url)["user"]
        execute(database, f"alter role {name} set idle_session_timeout = '30s'")
        assert statuses(await examine(url), "timeouts") == ["warn"]


async def test_a_role_with_few_connections_is_warned_of(examine: Examine, database: str) -> None:
    """Of its own limit, wherever the server's is."""
    with role(database, "connection limit 3") as url:
        found = await examine(url)

    assert statuses(found, "connections") == ["warn"]
    assert "of the 3 that this role may have" in found["connections"][0].found


async def test_a_long_transaction_is_named(examine: Examine, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here one of any length counts as long."""
    monkeypatch.setattr("relay.operate.doctor.server.OLD_SECONDS", 0.0)
    with psycopg.connect(database, application_name="forgotten") as other:
        other.execute("select pg_current_xact_id()")
        found = await examine()
        held = [finding for finding in found["old snapshots"] if "forgotten" in finding.found]
        assert str(other.info.backend_pid) in held[0].found
        with role(database) as url:
            unseen = await examine(url)
    assert "sessions are others'" in unseen["old snapshots"][0].found


async def test_an_event_that_waits_and_one_that_failed_are_warned_of(examine: Examine, database: str) -> None:
    """With what to look at."""
    with psycopg.connect(database) as owner:
        emit(owner, [event(1), event(2, available_at="2020-01-01T00:00:00Z"), event(3)])
    assert statuses(await examine(), "queue") == ["ok"]

    execute(
        database,
        "update outbox_events set created_at = now() - interval '1 hour' where aggregate_id = '1'",
        "update outbox_events set failed_at = now(), failure_reason = 'max_attempts' where aggregate_id = '3'",
    )
    late, failed = (await examine())["queue"]
    assert "due for 60 min" in late.found
    assert failed.found.startswith("1 events failed")


async def test_a_key_that_waits_behind_a_failed_event_is_warned_of(examine: Examine, database: str) -> None:
    """With what releases it; what waits is not late, for no relay could take it."""
    with psycopg.connect(database) as owner:
        emit(owner, [event(n, ordering_key="k") for n in range(3)])
    assert statuses(await examine(), "queue") == ["ok"]
    execute(
        database,
        "update outbox_events set created_at = now() - interval '1 hour'",
        "update outbox_events set failed_at = now() - interval '3 hours', failure_reason = 'max_attempts',"
        " blocks_key = true where aggregate_id = '0'",
    )

    failed, blocked = (await examine())["queue"]
    assert failed.found.startswith("1 events failed")
    assert (blocked.status.value, blocked.found) == (
        "warn",
        "1 ordering keys wait behind a failed event, the first for 3 h, with 2 events",
    )
    assert "python -m relay failed retry ID" in (blocked.remedy or "")


async def test_a_topic_that_is_missing_fails_with_the_remedy(examine: Examine, database: str, channel: Channel) -> None:
    """The default one, those of the routes, and those that pending rows name."""
    with psycopg.connect(database) as owner:
        emit(owner, [event(1, topic="nowhere-row"), event(2, topic=channel.topic)])
    found = await examine(relay_routes="order.*=nowhere-route")

    by_topic = {finding.found.split()[1].rpartition("/")[2]: finding for finding in found["broker"]}
    assert by_topic[channel.topic].status.value == "ok"
    assert {by_topic[name].status.value for name in ("nowhere-row", "nowhere-route")} == {"fail"}
    remedy = by_topic["nowhere-row"].remedy
    assert "create it with `python -m relay topics ensure " in remedy
    assert remedy.endswith("/nowhere-row`; if it is mistyped, correct RELAY_TOPIC, RELAY_ROUTES or the rows")


async def test_a_row_whose_topic_can_be_none_is_not_taken_for_a_broker_that_is_away(
    examine: Examine, database: str, channel: Channel
) -> None:
    """The topics behind it are asked for as well."""
    stored = '[{"event_type": "a.b", "aggregate_type": "a", "aggregate_id": "1", "data": {}, "topic": "%s"}]'
    execute(database, *(f"select outbox_emit('{stored % name}')" for name in ("bad topic", channel.topic)))
    found = await examine(relay_routes="order.*=nowhere-route")

    refused = [finding for finding in found["broker"] if "bad topic" in finding.found]
    assert [finding.status.value for finding in refused] == ["fail"]
    assert "can be none" in refused[0].found
    assert "cannot be reached" not in refused[0].found
    assert statuses(found, "broker") == ["ok", "fail", "fail"]


async def test_a_broker_that_is_away_fails_and_is_asked_once(examine: Examine, pubsub: PubSubSide) -> None:
    """Not again for every topic."""
    await pubsub.fail("UNAVAILABLE", method="GetTopic")
    found = await examine(relay_routes="order.*=other")

    assert statuses(found, "broker") == ["fail"]
    assert "UNAVAILABLE" in found["broker"][0].found


async def test_a_topic_that_cannot_be_seen_is_no_fault(examine: Examine, pubsub: PubSubSide) -> None:
    """Publish rights do not include the right to look."""
    await pubsub.fail("PERMISSION_DENIED", method="GetTopic")
    found = await examine()

    assert statuses(found, "broker") == ["ok"]
    assert "publish rights alone" in found["broker"][0].found


async def test_consumers_that_take_events_themselves_are_told_of(examine: Examine, database: str) -> None:
    """Beside a relay each event goes one way, and some went the other."""
    with psycopg.connect(database) as connection:
        emit(connection, [event(number) for number in range(2)])
        connection.execute("update outbox_events set published_at = now(), message_id = 'inbox' where id = 1")
    found = await examine()
    assert statuses(found, "takers") == ["warn"]
    assert "broker" not in found["takers"][0].found

    execute(database, "update outbox_events set published_at = now(), message_id = '17' where id = 2")
    assert "some went to a broker" in (await examine())["takers"][0].found

    execute(database, "update outbox_events set published_at = now() - interval '2 hours'")
    assert statuses(await examine(), "takers") == ["ok"]


async def test_nothing_is_changed(examine: Examine, database: str) -> None:
    """Not a row, and not the sequence."""
    with psycopg.connect(database) as owner:
        emit(owner, event(1))
    before = _contents(database)
    await examine()

    assert _contents(database) == before


def _contents(database: str) -> Any:
    with psycopg.connect(database) as connection:
        return connection.execute(
            "select o::text, s.last_value from outbox_events as o, outbox_events_id_seq as s"
        ).fetchall()


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("grant create on schema public to public", 'everybody may create objects in schema "public"'),
        ("alter function outbox_emit(jsonb) reset search_path", "its search_path is not fixed"),
        ("alter function outbox_emit(jsonb) set search_path to public", "pg_temp is not the last of it"),
        ("alter function outbox_emit(jsonb) security invoker", "it acts with its caller's rights"),
    ],
)
async def test_a_function_that_lends_its_owners_rights_is_looked_at(
    examine: Examine, database: str, broken: str, said: str
) -> None:
    """What is run with them must be the outbox's own; each remedy is SQL that mends it."""
    execute(database, broken)
    (finding,) = (await examine())["outbox_emit"]
    assert (finding.status.value, said in finding.found) == ("warn", True), finding

    execute(database, finding.remedy)
    assert statuses(await examine(), "outbox_emit") == ["ok"]
