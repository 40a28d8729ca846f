"""A relay that sleeps and is woken: on real servers, over real networks, beside real transactions."""

import asyncio
import re
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import IsolationLevel, sql
from psycopg.conninfo import make_conninfo
from psycopg.pq import Trace

from relay import emit
from relay.dev.stack import Stack
from relay.errors import ConfigurationError
from relay.kernel.failure import sentence
from relay.kernel.observe import PassFailed, PassFinished
from relay.operate.stats import short_look
from relay.outbox import listening as listening_module
from relay.outbox import schema
from relay.outbox.actions import Operator
from relay.outbox.events import ListenConnected, ListenLost, Looked
from relay.outbox.failed import Action, FailedRows, Named
from relay.outbox.listening import GRACE_SECONDS, PROOF_SECONDS, STATEMENT_SECONDS, DeafError, Listening
from relay.outbox.statements import statement
from relay.postgres.connect import connect_async
from relay.routes import Routes
from relay.testing.databases import fresh_database
from tests.support.bench import Bench
from tests.support.outbox import PENDING, count, event
from tests.support.proxy import postgres_proxy
from tests.support.roles_of_tests import as_relay
from tests.support.sleepers import LOCKS, SleepingRelay, spectator
from tests.support.waiting import until_async

# Between the commit and the broker, however busy the machine is; without being woken it would take half a minute.
SOON = 10.0
# Where it is busy with nothing else; a poll would take half a second.
QUICK = 0.25


@asynccontextmanager
async def sleeping(bench: Bench, listen_url: str = "", longest: float = 30.0) -> AsyncIterator[SleepingRelay]:
    """A relay that sleeps."""
    async with SleepingRelay(bench, listen_url, longest).running() as relay:
        await relay.asleep()
        yield relay


@pytest.mark.parametrize("level", [IsolationLevel.READ_COMMITTED, IsolationLevel.REPEATABLE_READ])
async def test_a_relay_that_sleeps_is_woken_at_the_commit(bench: Bench, level: IsolationLevel) -> None:
    """However long after the insert that is, and whatever else the transaction has seen."""
    async with sleeping(bench) as relay:
        with psycopg.connect(bench.url) as connection:
            connection.isolation_level = level
            stored = str(emit(connection, event()).event_id)
            await asyncio.sleep(0.05)
            assert relay.broker.taken == {}
            connection.commit()
            committed = time.monotonic()
        await relay.published(stored)
        assert relay.broker.taken[stored] - committed < SOON


@pytest.mark.parametrize("level", [IsolationLevel.READ_COMMITTED, IsolationLevel.REPEATABLE_READ])
async def test_what_was_stored_before_it_fell_asleep_and_commits_later_is_found(
    bench: Bench, level: IsolationLevel
) -> None:
    """Nobody slept at the insert, so nobody was told: the relay looks until that transaction has ended."""
    with psycopg.connect(bench.url) as connection:
        connection.isolation_level = level
        stored = str(emit(connection, event()).event_id)
        async with SleepingRelay(bench).running() as relay, spectator(bench.url) as heard:
            await until_async(lambda: locked(bench.url), "the relay has gone to sleep")
            await asyncio.sleep(0.3)
            connection.commit()
            committed = time.monotonic()
            await relay.published(stored)
            assert relay.broker.taken[stored] - committed < SOON
            assert "" not in heard


async def locked(url: str, holders: int = 1) -> bool:
    """Whether so many sessions have the sleeper's lock."""
    async with await psycopg.AsyncConnection.connect(url) as connection:
        found = await (await connection.execute(LOCKS)).fetchall()
    return [(mode, granted) for _, mode, granted in found] == [("ExclusiveLock", True)] * holders


async def test_nobody_is_told_while_nobody_sleeps(bench: Bench) -> None:
    """A NOTIFY takes a lock of the whole database; without a sleeper no commit pays for it."""
    async with spectator(bench.url) as heard:
        bench.emit(1)
        bench.emit(2)
        async with SleepingRelay(bench).running() as relay:
            await relay.asleep()
            assert "" not in heard
            (stored,) = bench.emit(3)
            await relay.published(stored)
            await until_async(lambda: is_true("" in heard), "the emit was told of")
        # A session ends on the server some time after its client has closed it, and its lock with it.
        await until_async(lambda: locked(bench.url, 0), "the lock of the sleeper is gone")
        told = heard.count("")
        bench.emit(4)
        with psycopg.connect(bench.url, autocommit=True) as connection:
            connection.execute("select outbox_wake()")  # comes after whatever that emit might have told
        await until_async(lambda: is_true(heard[-1] == "wake"), "everything was told")
        assert heard.count("") == told
    assert await locked(bench.url, 0)


async def is_true(value: bool) -> bool:  # noqa: FBT001 -- awaited where conditions are
    """The value."""
    return value


@pytest.mark.slow("watches relays for seconds")
async def test_one_relay_sleeps_and_the_other_polls(database: str) -> None:
    """And when the one that sleeps is gone, the other takes its place."""
    first, second = SleepingRelay(Bench(database)), SleepingRelay(Bench(database))
    async with second.running():
        async with first.running():
            await first.connected()
            await second.connected()
            await first.asleep()
            before = first.told(PassFinished), second.told(PassFinished)
            began = time.monotonic()
            await asyncio.sleep(2.0)
            passes = sorted((first.told(PassFinished) - before[0], second.told(PassFinished) - before[1]))
            assert passes[0] == 0
            assert 2 <= passes[1] <= 1 + (time.monotonic() - began) / 0.5
            assert await locked(database)
        await second.asleep()


async def test_two_relays_publish_every_event_once_and_soon(database: str) -> None:
    """Whichever of them is woken."""
    one, other = SleepingRelay(Bench(database)), SleepingRelay(Bench(database))
    async with one.running(), other.running():
        await one.connected()
        await other.connected()
        stored = []
        for number in range(30):
            stored += one.bench.emit(number)
            await asyncio.sleep(0.02)
        await until_async(lambda: is_true(len(one.broker.taken | other.broker.taken) == len(stored)), "all are out")
        assert set(one.broker.taken).isdisjoint(other.broker.taken)


async def test_a_cut_connection_is_polled_over_and_made_anew(bench: Bench) -> None:
    """Nothing waits for it."""
    with postgres_proxy(bench.url) as (proxy, url):
        async with sleeping(bench, url) as relay:
            proxy.refuse()
            (stored,) = bench.emit(1)
            await relay.published(stored)
            await until_async(lambda: is_true(relay.told(ListenLost) == 1), "the loss was told")
            (stored,) = bench.emit(2)
            await relay.published(stored)
            proxy.reopen()
            await relay.connected(times=2)
            await relay.asleep()
            (stored,) = bench.emit(3)
            began = time.monotonic()
            await relay.published(stored)
            assert time.monotonic() - began < SOON
            assert relay.told(ListenLost) == 1


async def test_a_session_that_the_server_ends_is_noticed_at_once(bench: Bench) -> None:
    """As when the server is restarted; the lock has gone with it."""
    async with sleeping(bench) as relay:
        with psycopg.connect(bench.url, autocommit=True) as connection:
            row = connection.execute(f"select pg_terminate_backend(pid) from ({LOCKS}) as lock").fetchone()  # noqa: S608
            assert row == (True,)
        await relay.connected(times=2)
        await relay.asleep()


@pytest.mark.slow("waits for what never comes")
async def test_a_pooler_that_swallows_notifications_is_found_out(bench: Bench, stack: Stack, template: str) -> None:
    """It takes LISTEN like a server; as does another database, which is how this test does it."""
    with fresh_database(stack.database_url, template) as elsewhere:
        async with SleepingRelay(bench, elsewhere).running() as relay:
            (stored,) = bench.emit(1)
            await relay.published(stored)
            await until_async(lambda: is_true(relay.told(ListenLost) == 1), "it was told")
            (stored,) = bench.emit(2)
            await relay.published(stored)
            assert relay.told(ListenConnected) == 0
        (lost,) = (event for event in relay.seen if isinstance(event, ListenLost))
        assert isinstance(lost.error, DeafError)
        assert "pooler" in str(lost.error)
        assert await locked(elsewhere, 0)


async def test_a_database_without_an_outbox_is_refused_by_name(bench: Bench, bare_database: str) -> None:
    """Whoever mistyped RELAY_LISTEN_URL is told so."""
    with pytest.raises(ConfigurationError, match="RELAY_LISTEN_URL must lead to the database of DATABASE_URL"):
        await Listening.open(lambda: connect_async(bare_database), lambda: connect_async(as_relay(bench.url)), "public")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"password": "wr0ng"}, r'FATAL: +password authentication failed for user "\w+"$'),
        ({"dbname": "not_there"}, r'FATAL: +database "not_there" does not exist$'),
    ],
)
async def test_what_a_server_says_to_a_listener_may_be_logged(bench: Bench, wrong: dict[str, str], said: str) -> None:
    """As it says it; the password that was tried is not told."""
    with pytest.raises(ConfigurationError, match="RELAY_LISTEN_URL") as refused:
        await connect_async(make_conninfo(bench.url, **wrong), setting="RELAY_LISTEN_URL")
    assert re.search(said, sentence(refused.value))
    assert "wr0ng" not in sentence(refused.value)


async def test_a_connection_is_proved_as_soon_as_its_proof_arrives(bench: Bench) -> None:
    """Nobody waits for the end of the time that a proof may take."""
    began = time.monotonic()
    listening = await Listening.open(
        lambda: connect_async(as_relay(bench.url)), lambda: connect_async(as_relay(bench.url)), "public"
    )
    assert time.monotonic() - began < PROOF_SECONDS
    await listening.close()


@asynccontextmanager
async def session_of(url: str) -> AsyncIterator[tuple[Listening, psycopg.AsyncConnection[Any]]]:
    """A session on which a relay may sleep, and its connection."""
    connection = await connect_async(url)
    await connection.execute("set default_transaction_isolation to serializable")

    async def listener() -> psycopg.AsyncConnection[Any]:
        return connection

    listening = await Listening.open(listener, lambda: connect_async(url), "public")
    yield listening, connection
    await listening.close()


async def test_looks_are_read_committed_whatever_the_database_says(bench: Bench) -> None:
    """One that were serializable would make business transactions fail."""
    async with session_of(bench.url) as (_, connection):
        assert await shown(connection, "transaction_isolation") == "read committed"


async def shown(connection: psycopg.AsyncConnection[Any], setting: str) -> str:
    """What a setting is."""
    row = await (await connection.execute("select current_setting(%s)", (setting,))).fetchone()
    assert row
    return str(row[0])


async def test_the_server_ends_a_session_that_keeps_the_lock_and_is_silent(bench: Bench) -> None:
    """A relay that was stopped or cut off would have everybody notify, and nobody else sleep, for good."""
    async with session_of(bench.url) as (listening, connection):
        assert await listening.begin(30.0)
        assert await shown(connection, "idle_session_timeout") == "45s"
        await listening.end()
        assert await shown(connection, "idle_session_timeout") == "0"

        assert await listening.begin(0.1 - GRACE_SECONDS)
        await until_async(lambda: locked(bench.url, 0), "the lock is free")
        with pytest.raises(psycopg.OperationalError):
            await listening.end()


async def test_a_lock_that_another_session_has_by_now_is_an_error(bench: Bench) -> None:
    """As behind a pooler that hands each transaction to another session."""
    async with session_of(bench.url) as (listening, connection):
        assert await listening.begin(30.0)
        await connection.execute("select pg_advisory_unlock_all()")
        with pytest.raises(psycopg.OperationalError, match="pooler"):
            await listening.end()


@pytest.mark.parametrize("state", ["connecting", "listen_start", "listen_enter", "sleep_begin", "look", "waiting"])
async def test_stopping_takes_no_time_where_the_connection_is_silent(
    bench: Bench, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half-open, in whatever it does: a statement that is not answered is not waited for."""
    with postgres_proxy(bench.url) as (proxy, url):
        frozen = asyncio.Event()

        def freezing(name: str) -> bytes:
            if name == state:
                proxy.freeze()
                frozen.set()
            return statement(name)

        monkeypatch.setattr(listening_module, "statement", freezing)
        if state == "connecting":
            proxy.freeze()
            frozen.set()
        async with SleepingRelay(bench, url).running() as relay:
            if state == "waiting":
                await relay.asleep()
                proxy.freeze()
                frozen.set()
            await frozen.wait()
            await asyncio.sleep(0.3)
            began = time.monotonic()
        assert time.monotonic() - began < STATEMENT_SECONDS - 0.5


@pytest.mark.slow("waits until an answer is given up")
async def test_a_look_that_is_not_answered_is_given_up_soon(bench: Bench) -> None:
    """Then the relay polls; the usual cancellation of a statement would take as long again, or longer."""
    with postgres_proxy(bench.url) as (proxy, url):
        async with sleeping(bench, url, longest=1.0) as relay:
            proxy.freeze()
            (stored,) = bench.emit(1)
            began = time.monotonic()
            await relay.published(stored)
            assert time.monotonic() - began < 1.0 + STATEMENT_SECONDS + 2.5
            assert relay.told(ListenLost) == 1


async def test_another_schema_of_the_database_wakes_nobody(bench: Bench) -> None:
    """Channel and lock are those of one table."""
    name = f"other_{uuid4().hex[:8]}"
    with psycopg.connect(bench.url) as connection:
        connection.execute(sql.SQL("create schema {}").format(sql.Identifier(name)))
        schema.migrate(connection, name, schema.newest())
    async with sleeping(bench), spectator(bench.url) as heard:
        with psycopg.connect(bench.url) as connection:
            connection.execute(sql.SQL("set search_path to {}").format(sql.Identifier(name)))
            emit(connection, event())
            connection.commit()
            connection.execute("select public.outbox_wake()")
            connection.commit()
        await until_async(lambda: is_true("wake" in heard), "everything was told")
        assert "" not in heard


async def test_a_retried_row_wakes_the_relay(bench: Bench) -> None:
    """An operator does not wait for the next poll of a relay that sleeps."""
    bench.emit(1)
    bench.query("update outbox_events set failed_at = now(), failure_reason = 'max_attempts' returning 1")
    async with sleeping(bench) as relay:
        async with await connect_async(as_relay(bench.url)) as connection:
            failed = FailedRows(connection, "public", Routes("domain-events").as_parameters)
            ids = [row_id for (row_id,) in bench.query("select id from outbox_events")]
            rows = await failed.named(Named(ids, []))
            _, action_id, _ = await failed.start()
            await failed.act(Action.RETRY, rows, Operator("ana", None), action_id)
        began = time.monotonic()
        await relay.published(rows[0].event_id)
        assert time.monotonic() - began < SOON


async def test_a_scheduled_event_leaves_at_its_time(bench: Bench) -> None:
    """One that was scheduled while the relay slept, and one that is due before it."""
    async with sleeping(bench) as relay:
        times = {seconds: later(bench, seconds) for seconds in (2.5, 1.5)}
        await relay.published(*(event_id for event_id, _ in times.values()))
        late = {seconds: relay.broker.taken[event_id] - due for seconds, (event_id, due) in times.items()}
        assert all(-0.01 <= delay < SOON for delay in late.values()), late
        # That a machine stalls makes one late, and not both of them.
        assert min(late.values()) < QUICK, late


def later(bench: Bench, seconds: float) -> tuple[str, float]:
    """Schedule an event; answer with its id and, by this process's clock, its time."""
    due = datetime.now(UTC) + timedelta(seconds=seconds)
    (event_id,) = bench.emit(1, available_at=due.isoformat())
    return event_id, time.monotonic() + (due - datetime.now(UTC)).total_seconds()


@pytest.mark.slow("watches a relay for seconds")
async def test_rows_that_another_session_holds_are_polled_for(bench: Bench) -> None:
    """No spin while it does, and no long sleep after."""
    async with sleeping(bench) as relay:
        with psycopg.connect(bench.url) as connection:
            held, due = later(bench, 0.5)
            connection.execute("select from outbox_events where event_id = %s for update", (held,))
            await asyncio.sleep(due - time.monotonic())
            before = relay.told(PassFinished)
            await asyncio.sleep(2.0)
            assert 2 <= relay.told(PassFinished) - before <= 8
            assert relay.broker.taken == {}
            late = []
            for number in range(2, 7):
                (other,) = bench.emit(number)
                began = time.monotonic()
                await relay.published(other)
                late.append(relay.broker.taken[other] - began)
            # The next poll is half a second after what went out last. A machine that stalls makes few of them late.
            assert statistics.median(late) < QUICK, late
        await relay.published(held)
    assert count(bench.url, PENDING) == 0


async def test_stopping_leaves_no_session_behind(bench: Bench) -> None:
    """And takes no time, asleep or not."""
    async with sleeping(bench):
        began = time.monotonic()
    assert time.monotonic() - began < SOON
    await until_async(lambda: locked(bench.url, 0), "the lock is gone")
    with psycopg.connect(bench.url) as connection:
        row = connection.execute(
            "select count(*) from pg_stat_activity where datname = current_database()"
            " and query like '-- Nothing is locked, and%' and pid <> pg_backend_pid()"
        ).fetchone()
    assert row == (0,)


async def test_a_session_that_was_ended_while_the_relay_slept_fails_no_pass(bench: Bench) -> None:
    """As idle_session_timeout does it: the next pass connects anew, and the event is not late."""
    async with sleeping(bench) as relay:
        with psycopg.connect(bench.url, autocommit=True) as connection:
            ended = connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database()"
                " and pid <> pg_backend_pid() and query = 'commit'"
            ).fetchall()
        assert ended == [(True,)]
        (stored,) = bench.emit(1)
        began = time.monotonic()
        await relay.published(stored)
        assert time.monotonic() - began < SOON
        assert relay.told(PassFailed) == 0


async def test_a_relay_that_sleeps_asks_for_little(database: str, tmp_path: Path) -> None:
    """One statement a look; with the statistics, nine a minute."""
    with (tmp_path / "trace").open("w") as file:

        async def traced() -> psycopg.AsyncConnection[Any]:
            connection = await connect_async(database)
            connection.pgconn.trace(file.fileno())
            connection.pgconn.set_trace_flags(Trace.SUPPRESS_TIMESTAMPS | Trace.REGRESS_MODE)
            await schema.require(connection, "public")
            return connection

        await short_look(traced, "public")()
    asked = len(re.findall(r"^F\t\d+\t(?:Execute|Query)", (tmp_path / "trace").read_text(), re.MULTILINE))
    assert asked <= 7

    async with sleeping(Bench(database), longest=0.7) as relay:
        passes, looks = relay.told(PassFinished), relay.told(Looked)
        began = time.monotonic()
        await asyncio.sleep(2.5)
        assert relay.told(Looked) - looks <= 1 + (time.monotonic() - began) / 0.7
        assert relay.told(PassFinished) == passes


async def test_a_look_finds_a_row_of_a_key_that_was_put_back_by_hand(bench: Bench) -> None:
    """Below the floors, and without a word to the relay that sleeps."""
    relay = SleepingRelay(bench, longest=1.5)
    (event_id,) = bench.emit(1, ordering_key="k")
    bench.query(
        "update outbox_events set failed_at = now(), failure_reason = 'max_attempts', attempt_count = 25 returning 1"
    )
    async with relay.running():
        await relay.connected()
        relay.publisher.floors.ordered_safe = 1_000
        await relay.asleep()
        bench.query(
            "update outbox_events set failed_at = null, failure_reason = null, attempt_count = 0, "
            "available_at = clock_timestamp() returning 1"
        )
        await relay.published(event_id)
