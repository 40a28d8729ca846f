"""What probes are told of a relay that publishes nothing."""

from dataclasses import replace

import pytest

from relay.errors import SchemaError
from relay.kernel.observe import LoopDied, PassFailed, PassFinished, ShutdownBegan
from relay.kernel.runner import Report
from relay.operate.health import State, Verdict
from relay.operate.job_health import JobHealth
from relay.operate.stats import RelayStats

SILENCE = 90.0
STATS = RelayStats(1, 2.5, 0, 2, 0, 0, 0, 0, 10_000, None, 60.0, 5, 4, 1, 0, 1, 0.1, 0.2, 3, 0, 1.5)
RAN, LOOKED = PassFinished("job:ingest", Report(), 0.1), PassFinished("stats", Report(), 0.1)
AWAY = SchemaError("schema 'public' has no table relay_schedule")


class Bench:
    """A health, and the time that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.health = JobHealth(lambda: self.now, SILENCE)

    def hear(self, *events: object) -> None:
        """Let it happen."""
        for event in events:
            self.health(event)


@pytest.fixture
def bench() -> Bench:
    """Nothing has happened."""
    return Bench()


def states(verdict: Verdict) -> dict[str, str]:
    """Each check by name."""
    return {check.name: check.state.value for check in verdict.checks}


def test_it_is_ready_when_the_database_answers_and_a_job_has_looked_for_its_slot(bench: Bench) -> None:
    """And alive before."""
    assert states(bench.health.ready()) == {"database": "fail", "pipeline": "fail", "shutting_down": "ok"}
    assert bench.health.healthy().ok
    bench.hear(RAN, STATS)
    assert bench.health.ready().state is State.OK


def test_a_job_that_waits_for_tomorrow_is_no_silence(bench: Bench) -> None:
    """The looks at the database tell that the process moves."""
    bench.hear(RAN, STATS)
    for _ in range(20):
        bench.now += 60
        bench.hear(LOOKED)
    assert bench.health.ready().ok
    assert bench.health.healthy().ok
    bench.now += SILENCE + 1
    assert not bench.health.ready().ok
    assert not bench.health.healthy().ok


def test_a_database_that_is_away_is_waited_for(bench: Bench) -> None:
    """Not ready, and no restart would end it."""
    bench.hear(RAN, STATS, replace(STATS, error="OperationalError: no"), LOOKED)
    assert states(bench.health.ready())["database"] == "fail"
    assert bench.health.healthy().ok
    bench.hear(STATS)
    assert bench.health.ready().state is State.OK


def test_some_jobs_that_fail_to_look_degrade_it_and_all_of_them_fail_it(bench: Bench) -> None:
    """Each by its name; what a job itself fails by is no pass that failed."""
    bench.hear(STATS, RAN, PassFailed("job:digest", AWAY, 0.1))
    assert states(bench.health.ready())["pipeline"] == "degraded"
    bench.hear(PassFailed("job:ingest", AWAY, 0.1))
    assert states(bench.health.ready())["pipeline"] == "fail"
    assert "job:digest: SchemaError: " in str(bench.health.ready().as_json())
    bench.hear(RAN, PassFinished("job:digest", Report(), 0.1))
    assert bench.health.ready().state is State.OK


def test_a_process_that_stops_is_not_ready_and_not_to_be_killed(bench: Bench) -> None:
    """Unless a loop of it died."""
    bench.hear(RAN, STATS, ShutdownBegan("SIGTERM", 25))
    bench.now += 10 * SILENCE
    assert not bench.health.ready().ok
    assert bench.health.healthy().ok
    bench.hear(LoopDied("job:ingest", RuntimeError("x")))
    assert not bench.health.healthy().ok
