"""Who pays while a broker refuses: nobody for an outage, and one poisonous row for itself alone."""

import asyncio
import time

import psutil
import psycopg
import pytest

from relay.dev.pubsub import Fault
from tests.chaos.conftest import Site
from tests.support.chaos import emit_events, logged, sized, stop, until_drained, until_said
from tests.support.outbox import FAILED, PENDING, count
from tests.support.waiting import until, until_async

FEW_ATTEMPTS = {
    "RELAY_MAX_ATTEMPTS": "3",
    "RELAY_RETRY_BASE_MS": "20",
    "RELAY_RETRY_JITTER_MS": "0",
    "RELAY_BATCH_SIZE": "1000",
}
OUTAGE_SECONDS = sized(3, 60)
BACKLOG = sized(2_000, 20_000)
GROWTH_BYTES = 20_000_000
POISONED = 1_000
MOST_REQUESTS = 20

pytestmark = pytest.mark.timeout(sized(60, 300))


def updates(url: str) -> int:
    """How many row versions were written to the outbox by updates, once every session has told."""
    with psycopg.connect(url) as connection:
        row = connection.execute("select n_tup_upd from pg_stat_user_tables where relname = 'outbox_events'").fetchone()
    return int(row[0]) if row else 0


@pytest.mark.slow("an outage of seconds")
async def test_an_outage_costs_no_row_an_attempt(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    """With three attempts a row: none is used; memory is flat, writes are the probes', and the drain is quick."""
    emit_events(site.database, BACKLOG)
    await site.fail(Fault("UNAVAILABLE", method="Publish"))
    with logged(site.relay, site.log, **FEW_ATTEMPTS) as process:
        await asyncio.to_thread(until_said, site.log, '"topic_failed"')
        began, before = time.monotonic(), psutil.Process(process.pid).memory_info().rss
        await asyncio.to_thread(
            until, lambda: time.monotonic() - began > OUTAGE_SECONDS, "the outage lasts", OUTAGE_SECONDS + 10.0
        )
        grown = psutil.Process(process.pid).memory_info().rss - before
        assert count(site.database, f"attempt_count > 0 or {FAILED}") == 0
        probes = (await site.requests()).alone
        await site.fail()
        back = time.monotonic()
        await asyncio.to_thread(until_drained, site.database)
        took = time.monotonic() - back
        assert stop(process) == 0
    report = await site.audit()
    assert report.passed, report
    assert (report.expected, report.failed, report.duplicates) == (BACKLOG, 0, 0)
    assert grown < GROWTH_BYTES
    await asyncio.to_thread(until, lambda: updates(site.database) >= BACKLOG, "the relay's figures are in")
    written = updates(site.database) - BACKLOG
    assert written <= probes
    with capsys.disabled():
        print(  # noqa: T201 -- the figures are the point
            f"\noutage of {OUTAGE_SECONDS} s: {probes} requests of one row, {written} rows written, "
            f"{grown / 1e6:.1f} MB grown; {BACKLOG} rows out {took:.1f} s after its end"
        )


@pytest.mark.parametrize("code", ["INVALID_ARGUMENT", "INTERNAL", "UNAVAILABLE"])
async def test_one_poisonous_message_among_a_thousand(
    site: Site, code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exactly that row ends as failed, all others go out, and finding it takes few requests."""
    emit_events(site.database, POISONED // 2)
    emit_events(site.database, 1, POISONED // 2, attributes={"kind": "poison"})
    emit_events(site.database, POISONED // 2 - 1, POISONED // 2 + 1)
    await site.fail(Fault(code, method="Publish", attribute="kind", value="poison"))
    trickled = 0

    async def failed() -> bool:
        nonlocal trickled
        if await asyncio.to_thread(count, site.database, FAILED):
            return True
        # A row pays only beside another one that its topic takes: so that there is one.
        if await asyncio.to_thread(count, site.database, f"{PENDING} and attributes = '{{}}'") == 0:
            emit_events(site.database, 1, POISONED + trickled)
            trickled += 1
        return False

    with logged(site.relay, site.log, **FEW_ATTEMPTS) as process:
        await until_async(failed, "the poisonous row has failed")
        await asyncio.to_thread(until_drained, site.database)
        assert stop(process) == 0
    assert count(site.database, f"{FAILED} and attributes <> '{{}}'") == 1
    requests = await site.requests()
    with capsys.disabled():
        print(f"\n{code}: {requests}, beside {trickled} further events")  # noqa: T201 -- the figures are the point
    assert requests.unanswered - 1 <= MOST_REQUESTS
    # Without the first request, and with the last halving's two of one row; others of one row are attempts and probes.
    assert requests.requests - 1 - requests.alone + 2 <= MOST_REQUESTS
    report = await site.audit()
    assert report.passed, report
    assert (report.expected, report.failed, report.duplicates) == (POISONED - 1 + trickled, 1, 0)


async def test_a_mistyped_topic_on_one_row_stops_nobody(site: Site) -> None:
    """It waits, whatever the broker says about the name; all others go out."""
    emit_events(site.database, 1, topic="no-such-topic")
    emit_events(site.database, 100, 1)
    with logged(site.relay, site.log, **FEW_ATTEMPTS) as process:
        await asyncio.to_thread(until, lambda: count(site.database, PENDING) == 1, "all but one are out")
        await asyncio.to_thread(until_said, site.log, '"topic_failed"')
        assert stop(process) == 0
    assert count(site.database, f"attempt_count > 0 or {FAILED}") == 0


async def test_a_mistyped_topic_as_the_default_costs_nothing(site: Site) -> None:
    """Every row waits; none has paid when the name is right. What can be no name is refused at the start."""
    emit_events(site.database, 100)
    assert (await asyncio.to_thread(site.relay, "run", RELAY_TOPIC="not a topic!")).returncode == 2
    with logged(site.relay, site.log, **FEW_ATTEMPTS, RELAY_TOPIC="no-such-topic") as process:
        await asyncio.to_thread(until_said, site.log, '"topic_failed"')
        assert stop(process) == 0
    assert count(site.database, f"{PENDING} and attempt_count = 0") == 100
    with logged(site.relay, site.log, **FEW_ATTEMPTS) as process:
        await asyncio.to_thread(until_drained, site.database)
        assert stop(process) == 0
