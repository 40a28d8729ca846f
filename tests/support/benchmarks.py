"""A run of the benchmark as it might be."""

from benchmarks.environment import Environment
from benchmarks.figures import Figure
from benchmarks.ratios import judged
from benchmarks.record import Run
from benchmarks.stand import OURS

_FIGURES = (
    Figure("drain", "limit, 400 B", "events/s", (120_000.0, 90_000.0, 100_000.0)),
    Figure("drain", "400 B", "events/s", (110_000.0, 90_000.0, 100_000.0)),
    Figure("peers", "relay", "events/s", (30_000.0, 31_000.0, 29_000.0)),
    Figure("peers", "slow & <steady> (Python)", "events/s", (3_000.0, 3_100.0, 2_900.0)),
    Figure("peers", "pg-boss (Node)", "events/s", skipped="no <node> & no npm"),
    Figure("latency", "relay 200/s p50", "ms", (2.5, 2.75, 2.25)),
    Figure("latency", "relay 200/s p99", "ms", (8.0, 9.0, 7.0)),
    Figure("latency", "relay 2,000/s p99", "ms", (12.0, 15.0, 11.0)),
)
RUN = Run(
    Environment(
        date="2026-01-02 03:04 UTC",
        commit="abc1234567",
        sections=("drain", "peers", "latency"),
        uncommitted=True,
        size="full",
        rounds=3,
        events=100_000,
        cpus=2,
        memory_gb=8,
        system="Linux x86_64",
        python="CPython 3.13.0",
        postgres="18.6",
        broker=OURS,
        psycopg="3.3.0 (binary)",
    ),
    _FIGURES,
    tuple(judged(_FIGURES)),
)
