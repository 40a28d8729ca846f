"""An outage that lasts for days, by a clock that the test moves on: what it costs the outbox, and the process."""

import gc
import tracemalloc

import pytest

from relay.errors import BrokerError
from relay.kernel.backoff import Retry
from relay.publisher.events import TopicProbed
from relay.publisher.failures import Attempts
from tests.support.bench import Bench
from tests.support.chaos import FULL
from tests.support.outbox import FAILED, PENDING, PUBLISHED, count

pytestmark = pytest.mark.slow("thousands of passes")

PASSES = 10_000 if FULL else 1_000
WARM_UP = PASSES // 10
# What the process may hold more at the end than after the first tenth.
FLAT_BYTES = 100_000


@pytest.mark.timeout(300)
async def test_thousands_of_passes_in_an_outage_cost_nobody_an_attempt(bench: Bench) -> None:
    """Hours at a probe every ten seconds: no row fails or is written, memory stays flat, and then all goes out."""
    bench.emit(*range(500))
    relay = bench.publisher_on(bench.outbox, attempts=Attempts(3, Retry(5, 120, 0)))
    bench.broker.refuse = lambda _: BrokerError("UNAVAILABLE", "away")
    probes, held = 0, []
    tracemalloc.start()
    for number in range(PASSES):
        bench.later += 10.25
        await bench.run_once(relay)
        probes += sum(isinstance(event, TopicProbed) for event in bench.seen)
        bench.seen.clear()
        bench.broker.asked.clear()
        if number in {WARM_UP, PASSES - 1}:
            gc.collect()
            held.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    written = bench.query("select n_tup_upd from pg_stat_user_tables where relname = 'outbox_events'")
    assert probes >= PASSES - 1
    assert written == [(0,)]
    assert held[1] - held[0] < FLAT_BYTES
    assert (count(bench.url, PENDING), count(bench.url, FAILED), bench.attempts()) == (500, 0, [])

    bench.broker.refuse = lambda _: None
    bench.later += 10.25
    await bench.run_once(relay)
    assert count(bench.url, PUBLISHED) == 500
