"""`relay run` while its servers go away, each in its way: it does not exit, it recovers, and nothing is lost."""

import asyncio
import contextlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import psycopg
import pytest

from relay.dev.postgres import EmbeddedPostgres, StopMode
from relay.dev.pubsub import Fault
from relay.dev.stack import Stack
from tests.chaos.conftest import Site
from tests.support.chaos import FULL, emit_events, logged, sized, stop, until_drained, until_published, until_said
from tests.support.outbox import FAILED, PENDING, PUBLISHED, count
from tests.support.pubsub import PubSubSide
from tests.support.waiting import until, until_async

BATCH = 100
CYCLES = sized(1, 5)
LONG = sized(5_000, 50_000)
SHORT = 1_000
# So that there is a middle, however fast the machine.
SLOW = Fault("OK", method="Publish", delay_ms=5)
SHORT_PASS = {"RELAY_RUNNER_MAX_MS": "1s", "RELAY_IDLE_TX_MS": "1500ms", "RELAY_PUBLISH_BUDGET_MS": "1s"}

pytestmark = pytest.mark.timeout(sized(60, 600))


async def finished(site: Site, events: int) -> int:
    """Check that all is out and nothing is lost or failed; answer with the number of duplicates."""
    report = await site.audit()
    assert report.passed, report
    assert (report.expected, report.lost, report.pending, report.failed) == (events, 0, 0, 0)
    return report.duplicates


@pytest.mark.slow("restarts servers for seconds")
async def test_postgres_restarts_and_the_broker_is_cut_off_again_and_again(
    site: Site, postgres: EmbeddedPostgres
) -> None:
    """In the middle of a drain, in turns; Postgres once in order, once without a word."""
    emit_events(site.database, LONG)
    await site.fail(SLOW)
    with logged(site.relay, site.log) as process:
        for cycle in range(CYCLES):
            await asyncio.to_thread(until_published, site.database, LONG * (2 * cycle + 1) // (2 * CYCLES + 1))
            assert count(site.database, PENDING) > 0
            postgres.restart([StopMode.IMMEDIATE, StopMode.FAST][cycle % 2])
            await asyncio.to_thread(until_published, site.database, LONG * (2 * cycle + 2) // (2 * CYCLES + 1))
            site.to_broker.reject()
            await asyncio.to_thread(until, lambda: site.to_broker.rejected > 1, "the relay tries to connect")
            site.to_broker.thaw()
        await asyncio.to_thread(until_drained, site.database)
        assert stop(process) == 0
    assert await finished(site, LONG) <= 2 * CYCLES * BATCH


@contextmanager
def all_connections(url: str) -> Iterator[ExitStack]:
    """Every connection that Postgres has left, those for superusers included."""
    with ExitStack() as held:
        take_connections(url, held)
        yield held


def take_connections(url: str, held: ExitStack) -> None:
    """Take what is left."""
    with contextlib.suppress(psycopg.OperationalError):
        while True:
            held.enter_context(contextlib.closing(psycopg.connect(url)))


@pytest.mark.slow("an outage of seconds")
async def test_postgres_out_of_connections_at_the_start(site: Site) -> None:
    """The relay waits until there is one."""
    emit_events(site.database, SHORT)
    with all_connections(site.database) as held, logged(site.relay, site.log) as process:
        await asyncio.to_thread(until_said, site.log, "pass_failed", "too many clients")
        held.close()
        await asyncio.to_thread(until_drained, site.database)
        assert stop(process) == 0
    assert await finished(site, SHORT) == 0


async def test_postgres_out_of_connections_in_the_middle(site: Site) -> None:
    """The relay loses its own one, somebody else takes it, and it comes back when there is one again."""
    emit_events(site.database, SHORT)
    with logged(site.relay, site.log) as process:
        await asyncio.to_thread(until_drained, site.database)
        site.to_postgres.refuse()
        with all_connections(site.database) as held:
            before = site.to_postgres.accepted
            site.to_postgres.reopen()
            await asyncio.to_thread(until, lambda: site.to_postgres.accepted > before + 1, "the relay asks twice")
            with pytest.raises(psycopg.OperationalError, match="too many clients"):
                psycopg.connect(site.database)
            held.close()
        emit_events(site.database, SHORT, SHORT)
        await asyncio.to_thread(until_drained, site.database)
        assert stop(process) == 0
    assert await finished(site, 2 * SHORT) == 0


@pytest.mark.slow("an outage of seconds")
async def test_postgres_turns_read_only_in_the_middle(site: Site, postgres: EmbeddedPostgres) -> None:
    """As a server does that is no longer the primary; the relay waits for one that can be written."""
    emit_events(site.database, SHORT)
    await site.fail(SLOW)
    with logged(site.relay, site.log) as process:
        await asyncio.to_thread(until_published, site.database, SHORT // 10)
        administer(postgres, "alter system set default_transaction_read_only = on")
        await asyncio.to_thread(until_said, site.log, "pass_failed", "read-only")
        assert count(site.database, PENDING) > 0
        administer(postgres, "alter system reset default_transaction_read_only")
        await asyncio.to_thread(until_drained, site.database)
        assert stop(process) == 0
    assert await finished(site, SHORT) <= BATCH


def administer(postgres: EmbeddedPostgres, statement: str) -> None:
    """Change a setting of the server for everybody."""
    with psycopg.connect(postgres.url, autocommit=True, options="-c default_transaction_read_only=off") as connection:
        connection.execute(statement.encode())
        connection.execute("select pg_reload_conf()")


async def test_postgres_away_at_the_start(site: Site) -> None:
    """Nobody listens, then somebody does."""
    emit_events(site.database, SHORT)
    site.to_postgres.refuse()
    with logged(site.relay, site.log) as process:
        await asyncio.to_thread(until_said, site.log, "pass_failed")
        site.to_postgres.reopen()
        await asyncio.to_thread(until_drained, site.database)
        assert stop(process) == 0
    assert await finished(site, SHORT) == 0


@pytest.mark.skipif(not FULL, reason="takes fifteen seconds; test_commit.py has a silence of its own: make chaos")
async def test_a_postgres_that_falls_silent(site: Site) -> None:
    """Half-open: the relay ends its pass by itself and connects again."""
    emit_events(site.database, SHORT)
    await site.fail(SLOW)
    with logged(site.relay, site.log, **SHORT_PASS) as process:
        await asyncio.to_thread(until_published, site.database, SHORT // 10)
        site.to_postgres.freeze()
        await asyncio.to_thread(until_said, site.log, "pass_failed")
        site.to_postgres.thaw()
        await asyncio.to_thread(until_drained, site.database)
        assert stop(process) == 0
    assert await finished(site, SHORT) <= BATCH


async def test_the_broker_away_at_the_start(site: Site) -> None:
    """No row pays for it."""
    emit_events(site.database, SHORT)
    site.to_broker.refuse()
    with logged(site.relay, site.log) as process:
        await asyncio.to_thread(until_said, site.log, "topic_failed")
        assert count(site.database, "attempt_count > 0") == 0
        site.to_broker.reopen()
        await asyncio.to_thread(until_drained, site.database)
        assert stop(process) == 0
    assert await finished(site, SHORT) == 0


async def test_a_broker_that_falls_silent(site: Site) -> None:
    """Half-open: requests go nowhere until the publish budget ends them, and the topic rests."""
    emit_events(site.database, SHORT)
    await site.fail(SLOW)
    with logged(site.relay, site.log, **SHORT_PASS) as process:
        await asyncio.to_thread(until_published, site.database, SHORT // 10)
        site.to_broker.freeze()
        await asyncio.to_thread(until_said, site.log, "DEADLINE_EXCEEDED")
        site.to_broker.thaw()
        await asyncio.to_thread(until_drained, site.database)
        assert stop(process) == 0
    assert await finished(site, SHORT) <= 2 * BATCH
    assert count(site.database, "attempt_count > 0") == 0


async def test_a_slow_broker(site: Site) -> None:
    """It is waited for; nothing goes out twice."""
    emit_events(site.database, SHORT)
    await site.fail(
        Fault("OK", method="Publish", delay_ms=100), Fault("OK", topic=site.topic, after=True, delay_ms=100)
    )
    with logged(site.relay, site.log) as process:
        await asyncio.to_thread(until_drained, site.database)
        assert stop(process) == 0
    assert await finished(site, SHORT) == 0


async def test_a_broker_whose_answers_are_lost(site: Site) -> None:
    """It stores and answers an error: what was in doubt goes out again, and no row fails."""
    emit_events(site.database, SHORT)
    await site.fail(Fault("UNAVAILABLE", topic=site.topic, after=True, times=3))
    with logged(site.relay, site.log, RELAY_RETRY_BASE_MS="10", RELAY_RETRY_JITTER_MS="0") as process:
        await asyncio.to_thread(until_drained, site.database)
        assert stop(process) == 0
    assert 0 < await finished(site, SHORT) <= 3 * BATCH


async def test_a_broker_that_restarts_empty(site: Site, own_stack: Stack) -> None:
    """The topic is gone: rows wait, nobody pays, and they go out once somebody has created it again."""
    assert own_stack.pubsub
    emit_events(site.database, SHORT)
    with logged(site.relay, site.log) as process:
        await asyncio.to_thread(until_drained, site.database)
        assert await finished(site, SHORT) == 0
        with psycopg.connect(site.database) as connection:
            connection.execute(f"delete from outbox_events where {PUBLISHED}")  # noqa: S608 -- audited already
        await asyncio.to_thread(own_stack.pubsub.restart)
        emit_events(site.database, SHORT, SHORT)
        await asyncio.to_thread(until_said, site.log, "NOT_FOUND")
        assert count(site.database, f"attempt_count > 0 or {FAILED}") == 0
        side = PubSubSide(site.broker)
        await side.create(site.channel)

        async def drained() -> bool:
            return count(site.database, PENDING) == 0

        await until_async(drained, "what waited is published")
        await side.close()
        assert stop(process) == 0
    assert await finished(site, SHORT) == 0
