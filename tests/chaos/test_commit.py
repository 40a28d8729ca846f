"""A COMMIT whose outcome the relay never learns."""

import asyncio

import pytest

from tests.chaos.conftest import Site
from tests.support.chaos import FULL, emit_events, logged, stop, until_drained
from tests.support.outbox import count
from tests.support.proxy import AtCommit
from tests.support.waiting import until

BATCH = 100
EVENTS = 10 * BATCH
# Silence is ended by the relay itself, once its pass has taken this long.
SHORT_PASS = {"RELAY_RUNNER_MAX_MS": "1s", "RELAY_IDLE_TX_MS": "1500ms", "RELAY_PUBLISH_BUDGET_MS": "1s"}
# Silence takes ten seconds to end: once, in `make test-slow`, is enough but for `make chaos`.
OUTCOMES = (
    list(AtCommit)
    if FULL
    else [
        AtCommit.CUT_BEFORE,
        AtCommit.CUT_AFTER,
        pytest.param(AtCommit.SILENT_AFTER, marks=pytest.mark.slow("waits until a silent server is given up")),
    ]
)


@pytest.mark.parametrize("what", OUTCOMES)
async def test_an_unknown_commit_loses_nothing_and_settles_nothing_twice(site: Site, what: AtCommit) -> None:
    """The relay drops what it believed and reads the truth; only what was not committed goes out again."""
    emit_events(site.database, EVENTS)
    site.to_postgres.at_commit(what, skip=2)
    with logged(site.relay, site.log, **SHORT_PASS) as process:
        until(site.to_postgres.happened.is_set, "a COMMIT was met")
        await asyncio.to_thread(until_drained, site.database)
        assert process.poll() is None, "the relay has ended"
        assert stop(process) == 0
    report = await site.audit()
    committed = what in {AtCommit.CUT_AFTER, AtCommit.SILENT_AFTER}
    assert report.passed, report
    assert (report.expected, report.lost, report.duplicates) == (EVENTS, 0, 0 if committed else BATCH)
    assert count(site.database, "attempt_count > 0") == 0
