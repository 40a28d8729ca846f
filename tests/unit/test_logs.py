"""Every event has its line, and no line says too much."""

import inspect
import io
import json
import logging
import subprocess
import sys
from typing import Any

import pytest

from relay.errors import BrokerError, MessageError
from relay.kernel import observe
from relay.kernel.observe import (
    CloseFailed,
    LoopDied,
    PassFailed,
    PassFinished,
    PassSkipped,
    ShutdownBegan,
    ShutdownEnded,
)
from relay.kernel.runner import Next, Report
from relay.operate import logs
from relay.operate.logs import Reconnected, Started
from relay.outbox.outbox import Claimed
from relay.publisher import events
from relay.publisher.events import BatchSettled, RequestFailed, RowFailed
from tests.support.commands import ROOT

PAYLOAD = "card 4111 1111 1111 1111"
ROW = Claimed(
    id=7,
    event_id="0190-7",
    event_type="order.paid",
    aggregate_type="order",
    aggregate_id="42",
    topic=None,
    body=PAYLOAD.encode(),
    attributes=f'{{"note": "{PAYLOAD}"}}',
    size_bytes=24,
    created_at="2026-01-01T00:00:00.000000Z",
    attempt_count=2,
)
VIOLATION = RuntimeError(f'new row violates check constraint "x"\nDETAIL:  Failing row contains (7, {PAYLOAD}).')

LINES: list[tuple[object, dict[str, Any]]] = [
    (
        BatchSettled(claimed=5, published=3, failed=1, size_bytes=2_000, seconds=0.01234),
        {
            "level": "info",
            "event": "batch",
            "claimed": 5,
            "published": 3,
            "failed": 1,
            "size_bytes": 2_000,
            "ms": 12.3,
        },
    ),
    (
        RequestFailed("orders", [ROW], BrokerError("UNAVAILABLE", "x" * 5_000)),
        {
            "level": "error",
            "event": "publish_failed",
            "topic": "orders",
            "code": "UNAVAILABLE",
            "error": "x" * 1_024,
            "batch_size": 1,
            "first_event_id": "0190-7",
            "consequence": "the rows stay pending; the topic is left alone for a while, and asked again",
        },
    ),
    (
        RowFailed(ROW, "orders", 9, MessageError("too_large", "x" * 5_000)),
        {
            "level": "error",
            "event": "row_failed",
            "event_id": "0190-7",
            "event_type": "order.paid",
            "aggregate_type": "order",
            "aggregate_id": "42",
            "created_at": "2026-01-01T00:00:00.000000Z",
            "batch_size": 9,
            "attempt_count": 3,
            "topic": "orders",
            "code": "too_large",
            "error": "x" * 1_024,
            "consequence": "the row is kept as failed (non_retryable) and is not published",
        },
    ),
    (
        PassFinished("publish", Report(processed=4, updated=3, skipped=2, errors=1, next=Next.AGAIN), 1.23456),
        {
            "level": "debug",
            "event": "pass",
            "runner": "publish",
            "processed": 4,
            "updated": 3,
            "skipped": 2,
            "errors": 1,
            "next": "again",
            "seconds": 1.235,
        },
    ),
    (
        PassFailed("publish", VIOLATION, 1.23456),
        {
            "level": "error",
            "event": "pass_failed",
            "runner": "publish",
            "error": 'RuntimeError: new row violates check constraint "x"',
            "raised_at": [],
            "seconds": 1.235,
            "consequence": "what the pass had begun is rolled back, and stays pending",
        },
    ),
    (
        PassSkipped("publish"),
        {
            "level": "warning",
            "event": "pass_skipped",
            "runner": "publish",
            "error": "the pass before is still under way",
        },
    ),
    (
        LoopDied("publish", VIOLATION),
        {
            "level": "error",
            "event": "loop_died",
            "runner": "publish",
            "error": 'RuntimeError: new row violates check constraint "x"',
            "raised_at": [],
            "consequence": "the process stops",
        },
    ),
    (
        CloseFailed("publish", VIOLATION),
        {
            "level": "error",
            "event": "close_failed",
            "runner": "publish",
            "error": 'RuntimeError: new row violates check constraint "x"',
            "consequence": "the end of the process drops its connections; its work had ended before",
        },
    ),
    (
        ShutdownBegan("SIGTERM", 25.0),
        {"level": "info", "event": "shutdown", "reason": "SIGTERM", "soft_timeout": 25.0},
    ),
    (
        Started("db:5432/app", "public", 2, "acme", "pubsub.googleapis.com", "orders", 1_000),
        {
            "level": "info",
            "event": "started",
            "database": "db:5432/app",
            "schema": "public",
            "schema_version": 2,
            "project": "acme",
            "broker": "pubsub.googleapis.com",
            "topic": "orders",
            "batch_size": 1_000,
        },
    ),
    (Reconnected("db:5432/app"), {"level": "info", "event": "reconnected", "database": "db:5432/app"}),
    (ShutdownEnded((), 1.23456), {"level": "info", "event": "stopped", "abandoned": [], "seconds": 1.235}),
    (
        ShutdownEnded(("publish",), 27.0),
        {"level": "warning", "event": "stopped", "abandoned": ["publish"], "seconds": 27.0},
    ),
]


def written(event: object, level: str = "debug") -> list[str]:
    """The lines that an event leaves."""
    stream = io.StringIO()
    logs.LogLines(logs.logger(level, stream))(event)
    return stream.getvalue().splitlines()


@pytest.mark.parametrize(("event", "expected"), LINES, ids=lambda value: type(value).__name__)
def test_every_event_has_its_line(event: object, expected: dict[str, Any]) -> None:
    """One line of JSON with these fields, a level and a time; errors are bounded, and no payload is among them."""
    (line,) = written(event)

    fields = json.loads(line)
    assert fields.pop("timestamp").endswith("Z")
    assert fields == expected
    assert PAYLOAD not in line


@pytest.mark.parametrize("module", [observe, events], ids=lambda module: module.__name__)
def test_no_event_is_forgotten(module: Any) -> None:
    """Whoever adds an event gives it a line, and its line a place in this test."""
    defined = {kind for _, kind in inspect.getmembers(module, inspect.isclass) if kind.__module__ == module.__name__}

    assert defined <= {type(event) for event, _ in LINES}


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
def test_less_severe_lines_are_left_out(level: str) -> None:
    """From the level on."""
    order = ["debug", "info", "warning", "error"]
    for event, expected in LINES:
        wanted = order.index(expected["level"]) >= order.index(level)
        assert len(written(event, level)) == wanted


def test_a_pass_that_found_nothing_leaves_no_line() -> None:
    """An idle relay polls twice a second, and says nothing about it even at debug; errors and skips are something."""
    assert written(PassFinished("publish", Report(), 0.001)) == []
    assert len(written(PassFinished("publish", Report(errors=1), 0.001))) == 1
    assert len(written(PassFinished("publish", Report(skipped=1), 0.001))) == 1


def test_an_event_of_somebody_else_leaves_no_line() -> None:
    """Other listeners have events of their own."""
    assert written(object()) == []


def test_a_failure_says_where_it_was_raised() -> None:
    """Modules and lines, enough to begin with; no value among them."""
    try:
        json.loads(PAYLOAD)
    except json.JSONDecodeError as error:
        (line,) = written(PassFailed("publish", error, 0.0))

    places = [place.partition(":")[0] for place in json.loads(line)["raised_at"]]
    assert places[0] == __name__
    assert places[-1] == "json.decoder"
    assert PAYLOAD not in line


def test_two_loggers_do_not_share_a_stream() -> None:
    """Nothing is global, nothing is cached: the second does not write where the first did."""
    first, second = io.StringIO(), io.StringIO()
    one = logs.LogLines(logs.logger("info", first))
    one(PassSkipped("one"))
    two = logs.LogLines(logs.logger("error", second))
    two(PassSkipped("two"))
    one(PassSkipped("three"))

    assert [json.loads(line)["runner"] for line in first.getvalue().splitlines()] == ["one", "three"]
    assert second.getvalue() == ""


def test_a_terminal_gets_lines_for_people() -> None:
    """Where JSON would be in the way."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    logs.LogLines(logs.logger("info", stream))(PassSkipped("publish"))

    assert "pass_skipped" in stream.getvalue()
    with pytest.raises(json.JSONDecodeError):
        json.loads(stream.getvalue())


def test_lines_of_libraries_are_json_too() -> None:
    """Their warnings, Python's, and an error with its traceback; what is less severe is theirs to keep."""
    program = """
import logging, sys, warnings
from relay.operate import logs
from relay.operate.logs import Reconnected, Started
logs.adopt_libraries(sys.stderr)
library = logging.getLogger("library")
library.info("chatter")
library.warning("careful with %s", "this")
warnings.warn("old")
try:
    raise OSError("gone")
except OSError:
    library.exception("it failed")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=30, check=True
    )

    careful, old, failed = map(json.loads, done.stderr.splitlines())
    assert (careful["event"], careful["level"]) == ("careful with this", "warning")
    assert "old" in old["event"]
    assert failed["exception"].endswith("OSError: gone")
    assert done.stdout == ""


def test_what_the_driver_says_over_a_broken_connection_is_left_out() -> None:
    """The break is raised, and has a line of its own; an error is still an error."""
    program = """
import logging, sys
from relay.operate import logs
logs.adopt_libraries(sys.stderr)
logging.getLogger("psycopg").warning("error ignored terminating %s", "<psycopg.AsyncPipeline>")
logging.getLogger("psycopg").error("worse")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=30, check=True
    )

    assert [json.loads(line)["event"] for line in done.stderr.splitlines()] == ["worse"]


def test_making_a_logger_touches_nothing_global() -> None:
    """Programs that embed the relay keep their own logging."""
    before = list(logging.getLogger().handlers)

    written(PassSkipped("publish"))

    assert logging.getLogger().handlers == before
