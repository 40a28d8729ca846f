"""Relays that end in the middle of their work, in an orderly way or not."""

import json
import signal
import time

import psycopg
import pytest

from relay import emit
from tests.support.audits import Audit
from tests.support.commands import Commands, terminate
from tests.support.forked import Running
from tests.support.outbox import PENDING, PUBLISHED, count, event
from tests.support.pubsub import Channel
from tests.support.waiting import until

BACKLOG = 20_000
# Small, so that there is a middle: what a relay has in flight is one batch.
BATCH = 200
SMALL_BATCHES = {
    "RELAY_BATCH_SIZE": str(BATCH),
    "RELAY_SLOTS": "1",
    "RELAY_POLL_MS": "10",
    "RELAY_POLL_JITTER_MS": "10",
}
SOFT_TIMEOUT = 25.0


def emit_backlog(database: str) -> None:
    """Commit a backlog in one transaction."""
    with psycopg.connect(database) as connection:
        emit(connection, [event(number) for number in range(BACKLOG)])


def until_under_way(database: str) -> None:
    """Return when a part of the backlog is out."""
    until(lambda: count(database, PUBLISHED) >= BACKLOG // 10, "a tenth of the backlog is published")
    assert count(database, PENDING) > 0, "the relay was too quick for this test: there is no middle left"


def until_logged(process: Running, name: str) -> None:
    """Return when the relay has written a log line of this name."""
    assert process.stderr
    assert any(json.loads(line)["event"] == name for line in process.stderr), f"it ended without a line {name!r}"


async def test_a_killed_relay_loses_nothing(relay: Commands, database: str, channel: Channel, audit: Audit) -> None:
    """Two relays share a backlog, one dies without a word: the other finishes, and at most one batch goes out twice."""
    with relay.background("run", **SMALL_BATCHES) as survivor, relay.background("run", **SMALL_BATCHES) as victim:
        until_logged(survivor, "started")
        until_logged(victim, "started")
        emit_backlog(database)
        until_logged(victim, "batch")
        victim.send_signal(signal.SIGKILL)
        assert count(database, PENDING) > 0, "the relays were too quick for this test: there is no middle left"
        until(lambda: count(database, PENDING) == 0, "the survivor publishes the rest")
        code, log = terminate(survivor)
    assert code == 0, log
    report = await audit(channel)
    assert report.passed, report
    assert (report.expected, report.lost) == (BACKLOG, 0)
    assert report.duplicates <= BATCH


@pytest.mark.slow("kills processes for seconds")
async def test_two_relays_publish_each_row_once(relay: Commands, database: str, channel: Channel, audit: Audit) -> None:
    """Without a crash nothing goes out twice, however many relays share the work."""
    with relay.background("run", **SMALL_BATCHES) as one, relay.background("run", **SMALL_BATCHES) as other:
        until_logged(one, "started")
        until_logged(other, "started")
        emit_backlog(database)
        until_logged(one, "batch")
        until_logged(other, "batch")
        until(lambda: count(database, PENDING) == 0, "the backlog is published")
        ends = [terminate(one), terminate(other)]
    assert [code for code, _ in ends] == [0, 0], ends
    report = await audit(channel)
    assert report.passed, report
    assert (report.expected, report.duplicates) == (BACKLOG, 0)


async def test_sigterm_under_load_finishes_what_is_in_flight(
    relay: Commands, database: str, channel: Channel, audit: Audit
) -> None:
    """The batch under way is settled, the rest stays pending and unlocked, and nothing goes out twice later."""
    emit_backlog(database)
    with relay.background("run", **SMALL_BATCHES) as process:
        until_under_way(database)
        asked = time.monotonic()
        code, log = terminate(process)
        took = time.monotonic() - asked
    assert code == 0, log
    assert took < SOFT_TIMEOUT
    left = count(database, PENDING)
    assert left > 0, "the relay went on to the end of the backlog"
    with psycopg.connect(database) as connection:
        free = connection.execute("select id from outbox_events where published_at is null for update nowait")
        assert free.rowcount == left

    assert relay("tick").returncode == 0
    report = await audit(channel)
    assert report.passed, report
    assert (report.expected, report.duplicates, report.early) == (BACKLOG, 0, 0)
