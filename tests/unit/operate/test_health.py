"""Ready and healthy are told from what happens on the road."""

from collections import Counter
from typing import Any

import psycopg
import pytest

from relay.errors import BrokerError, ConfigurationError, SchemaError
from relay.kernel.backoff import Delay
from relay.kernel.observe import LoopDied, PassFailed, PassFinished, ShutdownBegan
from relay.kernel.runner import Pace, Report
from relay.operate.events import Reconnected
from relay.operate.health import LATELY_SECONDS, MOST_TOPICS, Health, State, longest_silence
from relay.outbox.events import Looked
from relay.publisher.events import BatchSettled, TopicClosed, TopicOpened, TopicProbed

SILENCE = 90.0
HUNG = 80.0
FINISHED = PassFinished("publish", Report(), 0.1)
REFUSED = BrokerError("UNAVAILABLE", "away")
ROW: Any = None  # nothing of it is looked at


class Time:
    """Stands still unless told."""

    now = 1_000.0

    def __call__(self) -> float:
        """The test's time."""
        return self.now


@pytest.fixture
def time() -> Time:
    """A clock in the test's hand."""
    return Time()


@pytest.fixture
def health(time: Time) -> Health:
    """Of a relay that has just been started."""
    return Health(time, SILENCE, HUNG)


def settled(*topics: str) -> BatchSettled:
    """A batch that published one row to each topic."""
    taken = {topic: [(ROW, "m")] * count for topic, count in Counter(topics).items()}
    return BatchSettled(len(topics), len(topics), 0, 0, 100, 0.1, taken)


def opened(topic: str) -> TopicOpened:
    """The topic refuses."""
    return TopicOpened(topic, REFUSED, 0.5)


def failed(error: BaseException, seconds: float = 0.1) -> PassFailed:
    """A pass that raised."""
    return PassFailed("publish", error, seconds)


def faults(health: Health) -> dict[str, str]:
    """What is not ok in readiness, and why."""
    return {check.name: check.detail for check in health.ready().checks if check.state is not State.OK}


def test_a_relay_is_not_ready_before_its_first_pass_and_alive_all_the_same(health: Health) -> None:
    """Every check that is not ok says why."""
    assert not health.ready().ok
    assert set(faults(health)) == {"database", "schema", "pipeline"}
    assert all(faults(health).values())
    assert health.healthy().ok


def test_a_pass_that_ended_well_makes_it_ready(health: Health) -> None:
    """The pass had reached the database and its schema."""
    health(FINISHED)

    assert health.ready().state is State.OK
    assert health.ready().as_json() == {
        "status": "ok",
        "checks": {name: {"status": "ok"} for name in ("database", "schema", "broker", "pipeline", "shutting_down")},
    }


def test_a_batch_is_proof_enough(health: Health) -> None:
    """The first pass over a backlog takes a minute, and publishes all the while."""
    health(settled("t"))

    assert health.ready().ok


@pytest.mark.parametrize(
    "error",
    [
        psycopg.OperationalError("connection refused"),
        ConfigurationError("the database refuses DATABASE_URL"),
        ExceptionGroup("several", [psycopg.InterfaceError("gone")]),
    ],
)
def test_without_its_database_it_is_alive_and_not_ready(health: Health, time: Time, error: Exception) -> None:
    """An outage of a day is waited out: no restart ends it."""
    health(FINISHED)
    for _ in range(100):
        time.now += 10
        health(failed(error))

    assert set(faults(health)) == {"database", "pipeline"}
    assert health.healthy().ok


def test_a_database_that_is_back_is_seen_with_the_next_pass(health: Health) -> None:
    """The connection alone is not the work."""
    health(failed(psycopg.OperationalError("gone")))
    health(Reconnected("db"))
    assert set(faults(health)) == {"pipeline"}

    health(FINISHED)
    assert health.ready().ok


def test_a_schema_of_another_version_is_named_as_such(health: Health) -> None:
    """The database was reached, or nobody would know."""
    health(failed(SchemaError("schema 'public' is at version 1, this code needs 2")))

    assert set(faults(health)) == {"schema", "pipeline"}
    assert "version 1" in faults(health)["schema"]


def test_an_error_that_is_neither_is_the_pipelines(health: Health) -> None:
    """Whatever the last pass raised, it did not do its work."""
    health(FINISHED)
    health(failed(RuntimeError("a bug")))

    assert faults(health) == {"pipeline": "the last pass failed: RuntimeError: a bug"}


def test_a_relay_that_sleeps_looks_and_that_is_a_sign(health: Health, time: Time) -> None:
    """It begins no pass for as long as nothing is stored."""
    health(FINISHED)
    for _ in range(100):
        time.now += 30
        health(Looked())
    assert health.ready().ok
    assert health.healthy().ok

    time.now += 1_000
    assert not health.healthy().ok


def test_a_pass_that_hangs_turns_both_answers(health: Health, time: Time) -> None:
    """The process lives, its event loop answers, and nothing is published."""
    health(FINISHED)
    time.now += SILENCE
    assert health.ready().ok
    assert health.healthy().ok

    time.now += 1
    assert not health.healthy().ok
    assert not health.ready().ok
    assert "91 s" in faults(health)["pipeline"]


def test_a_first_pass_that_hangs_turns_both_answers(health: Health, time: Time) -> None:
    """Nothing has to have worked before."""
    time.now += SILENCE + 1

    assert not health.healthy().ok


def test_a_pass_that_had_to_be_cancelled_proves_no_movement(health: Health, time: Time) -> None:
    """Again and again it hangs to its limit: events come all the time, and the pipeline is stuck."""
    for _ in range(3):
        time.now += HUNG
        health(failed(TimeoutError("cancelled"), HUNG))

    assert not health.healthy().ok


def test_a_pass_that_lasts_moves_with_every_batch(health: Health, time: Time) -> None:
    """A settled batch is movement."""
    for _ in range(10):
        time.now += SILENCE / 2
        health(settled("t"))

    assert health.healthy().ok


def test_what_other_runners_do_proves_nothing(health: Health, time: Time) -> None:
    """Their loops are their own."""
    health(FINISHED)
    time.now += SILENCE + 1
    health(PassFinished("retention", Report(), 0.1))

    assert not health.healthy().ok


def test_one_topic_that_refuses_is_named_and_leaves_it_ready(health: Health) -> None:
    """Others take what they are sent."""
    health(FINISHED)
    health(settled("good"))
    health(opened("bad"))

    assert health.ready().ok
    assert health.ready().state is State.DEGRADED
    assert faults(health) == {"broker": "refuse messages, while others take them: bad"}


def test_when_every_topic_refuses_it_is_not_ready(health: Health, time: Time) -> None:
    """For as long as probes are in vain; alive all the while."""
    health(FINISHED)
    health(settled("a", "b"))
    health(opened("a"))
    health(opened("b"))
    for probes in range(1, 100):
        time.now += 10
        health(FINISHED)
        health(TopicProbed("a", REFUSED, probes, 10.0))
        health(TopicProbed("b", REFUSED, probes, 10.0))

    assert not health.ready().ok
    assert "every topic" in faults(health)["broker"]
    assert health.healthy().ok

    health(TopicClosed("a", 100, 1_000.0))
    assert health.ready().state is State.DEGRADED
    health(TopicClosed("b", 100, 1_000.0))
    assert health.ready().state is State.OK


def test_a_topic_that_only_a_row_names_does_not_make_it_unready(time: Time) -> None:
    """It may be mistyped; one of the settings that refuses is another matter."""
    health = Health(time, SILENCE, HUNG, topics=["orders"])
    health(FINISHED)
    health(opened("mistyped"))
    assert faults(health) == {"broker": "refuse messages, while no other was asked for: mistyped"}
    assert health.ready().ok
    health(opened("orders"))
    assert not health.ready().ok


def test_a_topic_is_open_until_it_is_closed(health: Health, time: Time) -> None:
    """However long nobody could ask it, because others held its rows."""
    health(FINISHED)
    health(opened("a"))
    time.now += 10 * LATELY_SECONDS
    health(FINISHED)
    assert not health.ready().ok


def test_a_topic_that_only_ran_out_of_rows_does_not_speak_for_the_broker(health: Health, time: Time) -> None:
    """Another relay drained it: what was last heard of it stands for a while, and then nothing is known."""
    health(FINISHED)
    health(opened("a"))
    health(TopicClosed("a", 1, 2.0, taken=False))
    assert not health.ready().ok
    time.now += LATELY_SECONDS
    health(FINISHED)
    assert health.ready().ok


def test_what_was_taken_long_ago_does_not_speak_for_the_broker(health: Health, time: Time) -> None:
    """Only what was asked lately counts."""
    health(settled("a"))
    health(FINISHED)
    time.now += LATELY_SECONDS
    health(opened("b"))

    assert not health.ready().ok


def test_a_probe_that_was_taken_does_not_close_the_topic(health: Health) -> None:
    """Its circuit does."""
    health(FINISHED)
    health(opened("a"))
    health(settled("a"))

    assert not health.ready().ok


def test_memory_and_sentences_are_bounded_whatever_the_rows_say(health: Health) -> None:
    """Topics come from rows."""
    health(FINISHED)
    for number in range(3 * MOST_TOPICS):
        health(opened(f"t{number}"))

    assert len(health._topics) == MOST_TOPICS
    assert len(faults(health)["broker"]) < 300
    assert "and 990 more" in faults(health)["broker"]


def test_a_process_that_stops_is_not_ready_and_not_to_be_killed(health: Health, time: Time) -> None:
    """It finishes what is in flight."""
    health(FINISHED)
    health(ShutdownBegan("SIGTERM", 25))
    time.now += SILENCE + 1

    assert faults(health)["shutting_down"] == "stopping: SIGTERM"
    assert not health.ready().ok
    assert health.healthy().ok


def test_a_loop_that_died_is_dead(health: Health) -> None:
    """Both answers say what of."""
    health(FINISHED)
    health(LoopDied("publish", RuntimeError("a bug")))

    assert not health.ready().ok
    (check,) = health.healthy().checks
    assert check.detail == "the loop of publish died: RuntimeError: a bug"


def test_the_longest_silence_is_the_longest_pause_and_the_longest_pass() -> None:
    """From the same settings as the loop's."""
    pace = Pace(busy=0, idle=Delay(0.5, 30, 0.25), error=Delay(0.5, 10, 0.25))

    assert longest_silence(pace, 60, 20) == 110.25
