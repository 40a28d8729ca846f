"""What is said of jobs, at which level, and how often."""

import asyncio
import inspect
import io
import json
from dataclasses import is_dataclass
from typing import Any

import pytest

from relay.kernel.line_writer import LineWriter
from relay.kernel.log_output import logger
from relay.upkeep import events
from relay.upkeep.events import RunFault, RunSkipped, Status
from relay.upkeep.execution import Execution
from relay.upkeep.lines import LINES, JobLines
from relay.upkeep.schedule import Every
from tests.support.job_events import EVENTS, REFUSED, SLOT, WORKER, ended

RUN = {"job": "ingest", "slot": "2026-03-01T03:17:00Z", "worker": WORKER}
ENDED = {**RUN, "event": "run_ended", "counters": {"rows": 7}, "seconds": 1.235}


class Log:
    """The lines, and the time that a test moves."""

    def __init__(self, level: str = "debug") -> None:
        self.now = 1_000.0
        self._stream = io.StringIO()
        self.tell = JobLines(LineWriter(logger(level, self._stream), None, lambda: self.now, lambda *_: {})).tell

    def lines(self) -> list[dict[str, Any]]:
        """Every line so far, without its time of day."""
        lines = [json.loads(line) for line in self._stream.getvalue().splitlines()]
        return [{name: value for name, value in line.items() if name != "timestamp"} for line in lines]


def test_no_event_is_forgotten() -> None:
    """Whoever adds an event gives it a line."""
    defined = {
        kind
        for _, kind in inspect.getmembers(events, inspect.isclass)
        if kind.__module__ == events.__name__ and is_dataclass(kind)
    }
    assert {type(event) for event in EVENTS} == defined


def test_every_line_has_the_documented_fields() -> None:
    """Those of one table; neither more nor less, whatever happened."""
    log = Log()
    for event in EVENTS:
        log.tell(event)

    documented = {line.name: line for line in LINES}
    for line in log.lines():
        assert set(line) - {"event", "level"} == set(documented[line["event"]].fields), line
        assert line["level"] in documented[line["event"]].levels
    assert {line["event"] for line in log.lines()} == set(documented)


def test_a_job_that_is_at_work_already_is_told_by_that_name() -> None:
    """It is what alerts look for."""
    log = Log("info")
    log.tell(RunSkipped("ingest", SLOT, WORKER))
    (line,) = log.lines()
    assert {**RUN, "event": "worker_already_running", "level": "warning"}.items() <= line.items()


@pytest.mark.parametrize(
    ("status", "errors", "level"),
    [
        (Status.DONE, 0, "info"),
        (Status.DONE, 2, "warning"),
        (Status.CANCELLED, 0, "warning"),
        (Status.FAILED, 0, "error"),
        (Status.TIMED_OUT, 0, "error"),
        (Status.LOST, 0, "error"),
        (Status.KILLED, 0, "error"),
    ],
)
def test_an_end_is_as_severe_as_it_is(status: Status, errors: int, level: str) -> None:
    """Whatever is not done as it should be says what follows from it."""
    log = Log("info")
    log.tell(ended(status, errors))

    (line,) = log.lines()
    assert (line["level"], line["status"], line["errors"]) == (level, status.value, errors)
    assert (line["consequence"] is None) == (level == "info")


def test_a_run_that_failed_says_of_what() -> None:
    """With the code that its history has, and the place."""
    log = Log("info")
    try:
        raise REFUSED
    except type(REFUSED) as error:
        log.tell(ended(Status.FAILED, error=error))

    (line,) = log.lines()
    assert line.pop("raised_at")[-1].partition(":")[0].endswith("test_lines")
    assert line == {
        **ENDED,
        "level": "error",
        "status": "failed",
        "errors": 0,
        "code": "HTTP_503",
        "error": "ApiError: HTTP_503: POST /digest was answered with status 503",
        "consequence": "what it had committed stays; this slot is not repeated, the next one comes as ever",
        "remedy": "see error, and raised_at, which begins with the job's own line; its history is shown by: "
        "python -m relay runs --job ingest",
    }


async def test_the_place_of_a_failure_begins_with_the_job_s_own_line() -> None:
    """How it was called is left out; what it called of ours is not."""

    async def job() -> None:
        Every.of("soon")

    async def lost() -> BaseException:
        await asyncio.Event().wait()
        raise AssertionError

    ending = await Execution(job, lost(), lambda _: None).run(1)
    assert isinstance(ending.error, Exception)
    log = Log("info")
    log.tell(ended(Status.FAILED, error=ending.error))

    (line,) = log.lines()
    assert [place.partition(":")[0] for place in line["raised_at"]] == [__name__, "relay.upkeep.schedule"]


def test_a_fault_that_repeats_is_a_line_a_minute() -> None:
    """The first at once, and another kind of it too; then how many there were."""
    log = Log("info")
    for second in range(181):
        log.now = 1_000.0 + second
        log.tell(RunFault("ingest", WORKER, "source a", REFUSED))
        if second == 1:
            log.tell(RunFault("ingest", WORKER, "source b", REFUSED))

    assert [(line["what"], line["faults"]) for line in log.lines()] == [
        ("source a", 1),
        ("source b", 1),
        ("source a", 63),
        ("source a", 123),
    ]


def test_a_run_without_a_fault_ends_the_count() -> None:
    """The next fault is a first one."""
    log = Log("info")
    for event in (RunFault("ingest", WORKER, "a", REFUSED), ended(errors=1), ended()):
        log.tell(event)
    log.now += 61
    log.tell(RunFault("ingest", WORKER, "a", REFUSED))

    assert [line["faults"] for line in log.lines() if line["event"] == "run_fault"] == [1, 1]


def test_what_a_job_says_of_a_fault_is_one_line_without_secrets() -> None:
    """It is the user's own text."""
    log = Log()
    log.tell(RunFault("ingest", WORKER, "source postgres://u:hunter2@h/db\nand more", REFUSED))

    assert "hunter2" not in json.dumps(log.lines())
    assert "\\n" not in json.dumps(log.lines())


def test_a_slot_of_another_zone_is_told_in_utc() -> None:
    """As all times are."""
    log = Log()
    log.tell(EVENTS[0])
    assert log.lines()[0]["slot"] == SLOT.isoformat().replace("+00:00", "Z")
