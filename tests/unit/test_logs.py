"""Every event has its line, and no line says too much."""

import inspect
import io
import json
import logging
import subprocess
import sys
from dataclasses import asdict, is_dataclass
from types import ModuleType
from typing import Any

import psycopg
import pytest

from relay.errors import BrokerError, ConfigurationError, MessageError
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
from relay.operate import events as process_events
from relay.operate import logs, stats
from relay.operate.events import Reconnected, SchemaDiffers, Started
from relay.operate.http import server
from relay.operate.http.server import HttpListening
from relay.operate.line_table import LINES as TABLE
from relay.operate.stats import RelayStats
from relay.outbox import events as sleep_events
from relay.outbox.events import ListenConnected, ListenLost, Looked
from relay.outbox.listening import DeafError
from relay.outbox.rows import Claimed
from relay.publisher import events
from relay.publisher.events import (
    BatchSettled,
    KeyRests,
    RequestFailed,
    RowFailed,
    RowRetried,
    SlotsLacking,
    TopicClosed,
    TopicOpened,
    TopicProbed,
)
from tests.support.commands import ROOT
from tests.support.job_events import EVENTS as OF_JOBS

PAYLOAD = "card 4111 1111 1111 1111"
ROW = Claimed(
    id=7,
    event_id="0190-7",
    event_type="order.paid",
    aggregate_type="order",
    aggregate_id="42",
    topic=None,
    body=PAYLOAD.encode(),
    attributes=f'{{"note": "{PAYLOAD}"}}'.encode(),
    size_bytes=24,
    created_at="2026-01-01T00:00:00.000000Z",
    attempt_count=2,
    ordering_key=None,
)
VIOLATION = RuntimeError(f'new row violates check constraint "x"\nDETAIL:  Failing row contains (7, {PAYLOAD}).')

EVENT = {
    "event_id": "0190-7",
    "event_type": "order.paid",
    "aggregate_type": "order",
    "aggregate_id": "42",
    "created_at": "2026-01-01T00:00:00.000000Z",
}
WAIT = "the rows of this topic wait, and none of them pays; nothing is lost, and one is tried again and again"
STATS = RelayStats(1, 2.5, 0, 2, 0, 0, 0, 0, 10_000, None, 60.0, 5, 4, 1, 0, 1, 0.1, 0.2, 3, 0, 1.5)

LINES: list[tuple[object, dict[str, Any]]] = [
    (
        BatchSettled(claimed=7, published=3, retried=1, failed=1, size_bytes=2_000, seconds=0.01234),
        {
            "level": "info",
            "event": "batch",
            "claimed": 7,
            "published": 3,
            "retried": 1,
            "failed": 1,
            "released": 2,
            "size_bytes": 2_000,
            "ms": 12.3,
        },
    ),
    (
        SlotsLacking(RuntimeError("too many connections"), 60.0),
        {
            "level": "warning",
            "event": "slots_lacking",
            "code": "RuntimeError",
            "error": "RuntimeError: too many connections",
            "again_in_seconds": 60.0,
            "consequence": "batches go on over the connections that there are: nothing is lost, a backlog takes longer",
            "remedy": "none is needed when the server comes back; where there are too many connections, allow the role "
            "and the database as many as RELAY_SLOTS and one, or lower it",
        },
    ),
    (
        RequestFailed("orders", [ROW], BrokerError("UNAVAILABLE", "x" * 5_000)),
        {
            "level": "error",
            "event": "publish_failed",
            **EVENT,
            "batch_size": 1,
            "attempt_count": 2,
            "topic": "orders",
            "code": "UNAVAILABLE",
            "error": f"BrokerError: UNAVAILABLE: {'x' * 5_000}"[:1_024],
            "consequence": "what becomes of its rows is told by the lines that follow; those that none names wait",
        },
    ),
    (
        RowFailed(ROW, "orders", 9, MessageError("invalid_topic", "x" * 5_000), 3, "non_retryable", blocks_key=True),
        {
            "level": "error",
            "event": "row_failed",
            **EVENT,
            "batch_size": 9,
            "attempt_count": 3,
            "topic": "orders",
            "code": "invalid_topic",
            "error": f"MessageError: {'x' * 5_000}"[:1_024],
            "reason": "non_retryable",
            "blocks_key": True,
            "consequence": "the row is kept as failed (non_retryable) and is not published; its ordering key waits "
            "until it is retried or discarded",
        },
    ),
    (
        KeyRests(ROW, "orders", 9, BrokerError("RESOURCE_EXHAUSTED", "no"), 1.0),
        {
            "level": "warning",
            "event": "key_rests",
            **EVENT,
            "batch_size": 9,
            "attempt_count": 2,
            "topic": "orders",
            "code": "RESOURCE_EXHAUSTED",
            "error": "BrokerError: RESOURCE_EXHAUSTED: no",
            "delay_seconds": 1.0,
            "consequence": "the topic takes others: this row's ordering key is left alone for the delay, "
            "and nobody pays",
        },
    ),
    (
        RowRetried(ROW, "orders", 9, BrokerError("INTERNAL", "no"), 3, 5.12345),
        {
            "level": "warning",
            "event": "row_retried",
            **EVENT,
            "batch_size": 9,
            "attempt_count": 3,
            "topic": "orders",
            "code": "INTERNAL",
            "error": "BrokerError: INTERNAL: no",
            "delay_seconds": 5.123,
            "consequence": "the row has one attempt less, and comes again after the delay",
        },
    ),
    (
        TopicOpened("orders", BrokerError("NOT_FOUND", "no"), 0.51234),
        {
            "level": "error",
            "event": "topic_failed",
            "topic": "orders",
            "code": "NOT_FOUND",
            "error": "BrokerError: NOT_FOUND: no",
            "probe_in_seconds": 0.512,
            "consequence": WAIT,
            "remedy": (
                "topic orders does not exist: if the name is right, create it with `python -m relay topics ensure "
                "orders`; if it is mistyped, correct RELAY_TOPIC, RELAY_ROUTES or the rows"
            ),
        },
    ),
    (HttpListening("127.0.0.1", 80), {"level": "info", "event": "http_listening", "host": "127.0.0.1", "port": 80}),
    (STATS, {"level": "info", "event": "relay_stats", **asdict(STATS)}),
    (
        PassFailed("other", VIOLATION, 1.23456),
        {
            "level": "error",
            "event": "pass_failed",
            "runner": "other",
            "code": "RuntimeError",
            "error": 'RuntimeError: new row violates check constraint "x"',
            "raised_at": [],
            "seconds": 1.235,
            "consequence": "what the pass had begun is rolled back, and stays pending",
            "remedy": None,
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
            "code": "RuntimeError",
            "error": 'RuntimeError: new row violates check constraint "x"',
            "raised_at": [],
            "seconds": 1.235,
            "consequence": "what the pass had begun is rolled back, and stays pending",
            "remedy": None,
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
            "code": "RuntimeError",
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
            "code": "RuntimeError",
            "error": 'RuntimeError: new row violates check constraint "x"',
            "consequence": "the end of the process drops its connections; its work had ended before",
        },
    ),
    (
        ShutdownBegan("SIGTERM", 25.0),
        {"level": "info", "event": "shutdown", "reason": "SIGTERM", "soft_timeout": 25.0},
    ),
    (
        Started("db:5432/app", "public", 2, ("publish",), "acme", "pubsub.googleapis.com", "orders", 1_000),
        {
            "level": "info",
            "event": "started",
            "database": "db:5432/app",
            "schema": "public",
            "schema_version": 2,
            "runners": ["publish"],
            "project": "acme",
            "broker": "pubsub.googleapis.com",
            "topic": "orders",
            "batch_size": 1_000,
        },
    ),
    (
        SchemaDiffers("public", 1, 2),
        {
            "level": "warning",
            "event": "schema_differs",
            "schema": "public",
            "schema_version": 1,
            "release_version": 2,
            "consequence": "none for events, which are published: a release works on the version before its own "
            "and on the one after, for as long as a deploy takes",
            "remedy": "bring the schema up with: python -m relay migrate",
        },
    ),
    (Reconnected("db:5432/app"), {"level": "info", "event": "reconnected", "database": "db:5432/app"}),
    (ListenConnected("db:5432/app"), {"level": "info", "event": "listen_connected", "database": "db:5432/app"}),
    (
        ListenLost(OSError("gone"), 0.5),
        {
            "level": "warning",
            "event": "listen_lost",
            "code": "OSError",
            "error": "OSError: gone",
            "again_in_seconds": 0.5,
            "consequence": "the relay polls every RELAY_POLL_MS until it hears of new events again",
            "remedy": "none is needed when the server comes back; if it is up, see that the host and port of "
            "RELAY_LISTEN_URL, or of DATABASE_URL where that is not set, lead to it",
        },
    ),
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


@pytest.mark.parametrize(
    "module", [observe, events, process_events, sleep_events, stats, server], ids=lambda module: str(module.__name__)
)
def test_no_event_is_forgotten(module: ModuleType) -> None:
    """Whoever adds an event gives it a line, and its line a place in this test."""
    defined = {
        kind
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if kind.__module__ == module.__name__ and is_dataclass(kind) and not kind.__name__.startswith("_")
    }

    told = {type(event) for event, _ in LINES} | {TopicProbed, TopicClosed, Looked}  # these: below
    assert defined - {server.Limits} <= told
    assert defined & told


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


def test_a_relay_that_sleeps_says_nothing_of_it() -> None:
    """It looks twice a minute for as long as nothing is stored."""
    assert written(Looked()) == []


def test_a_pooler_that_swallows_notifications_has_a_remedy() -> None:
    """It mends nothing by itself."""
    (line,) = written(ListenLost(DeafError("a notification did not arrive"), 30.0))
    assert "RELAY_LISTEN_URL" in json.loads(line)["remedy"]


SERVER = 'connection failed: connection to server at "10.0.0.1", port 5432 failed: FATAL:  '


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ('password authentication failed for user "ann"', "the user and the password in RELAY_LISTEN_URL"),
        ('database "shop" does not exist', "the database or the role that RELAY_LISTEN_URL names"),
        ('no pg_hba.conf entry for host "10.0.0.2", user "ann", database "shop", no encryption', "let them in"),
    ],
)
def test_what_the_server_says_to_a_listener_is_in_the_line(said: str, remedy: str) -> None:
    """Whole, with the names that it quotes, as for DATABASE_URL; and what to do is chosen by it."""
    cause = psycopg.OperationalError(f"{SERVER}{said}\n")
    error = ConfigurationError(f"the database refuses RELAY_LISTEN_URL: {SERVER}{said}")
    error.__cause__ = cause
    line = json.loads(written(ListenLost(error, 0.5))[0])
    whole = said.partition("host")[0]
    assert line["error"].startswith(f"ConfigurationError: the database refuses RELAY_LISTEN_URL: {SERVER}{whole}")
    assert remedy in line["remedy"]


def test_a_listener_of_another_database_is_told_which_setting_leads_there() -> None:
    """No waiting mends it."""
    error = ConfigurationError("database 'other', to which the relay listens, has no outbox in schema 'public'")
    assert "set RELAY_LISTEN_URL" in json.loads(written(ListenLost(error, 0.5))[0])["remedy"]


def test_what_repeats_an_error_of_the_database_hides_what_that_hides() -> None:
    """A value that the database quotes, and the password of a url, are in none of them."""
    said = 'invalid input syntax for type integer: "4111" at postgresql://ann:geheim@db/shop'
    error = ConfigurationError(f"the database refuses RELAY_LISTEN_URL: {said}")
    error.__cause__ = psycopg.OperationalError(said)
    (line,) = written(ListenLost(error, 0.5))
    assert "4111" not in line
    assert "geheim" not in line


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


def test_each_line_names_its_relay_where_it_has_a_name() -> None:
    """Several that log to one place are told apart; nothing stands there that nobody set."""
    named, plain = io.StringIO(), io.StringIO()
    logs.LogLines(logs.logger("info", named, "relay-eu"))(PassSkipped("publish"))
    logs.LogLines(logs.logger("info", plain))(PassSkipped("publish"))

    assert json.loads(named.getvalue())["app"] == "relay-eu"
    assert "app" not in json.loads(plain.getvalue())


def test_lines_of_libraries_name_the_relay_too() -> None:
    """Whatever the user's redaction leaves of them."""
    program = """
import logging, sys
from relay.operate import logs
logs.adopt_libraries(sys.stderr, lambda line: {"event": "x", "level": "error"}, "relay-eu")
logging.getLogger("library").warning("careful")
raise ValueError("nobody catches this")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=30, check=False
    )

    assert [json.loads(line) for line in done.stderr.splitlines()] == [
        {"event": "x", "level": "error", "app": "relay-eu"},
        {"event": "x", "level": "error", "app": "relay-eu"},
    ]


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


class Clock:
    """Time that a test moves."""

    now = 1_000.0

    def __call__(self) -> float:
        """The time."""
        return self.now


class Log:
    """LogLines, its clock, and the lines that they left."""

    def __init__(self, level: str = "info", **options: Any) -> None:
        self.clock = Clock()
        self._stream = io.StringIO()
        self.tell = logs.LogLines(logs.logger(level, self._stream), monotonic=self.clock, **options)

    def lines(self) -> list[dict[str, Any]]:
        """Every line so far."""
        return [json.loads(line) for line in self._stream.getvalue().splitlines()]

    def names(self) -> list[str]:
        """The kinds of the lines so far."""
        return [line["event"] for line in self.lines()]


def settled(*topics: str) -> BatchSettled:
    """A batch with one published row for each topic."""
    return BatchSettled(len(topics), len(topics), 0, 0, 24, 0.1, {topic: [(ROW, "m1")] for topic in topics})


def _fails_on_bad(line: dict[str, Any]) -> dict[str, Any]:
    if line.get("runner") == "bad":
        raise ValueError
    return line


def test_every_line_has_the_documented_fields() -> None:
    """Those of one table, which the documentation shows; neither more nor less, whatever happened."""
    log = Log("debug", events=True, redact=_fails_on_bad)
    for event, _ in LINES:
        log.tell(event)
    request = RequestFailed("other", [ROW], BrokerError("INTERNAL", "no"))
    for later in (
        TopicProbed("orders", BrokerError("NOT_FOUND", "no"), 2, 1.0),
        request,
        PassFailed("publish", VIOLATION, 1.0),
        request,
        PassFinished("publish", Report(), 0.1),
        settled("other"),
        TopicClosed("orders", 3, 180.0),
        TopicOpened("empty", BrokerError("UNAVAILABLE", "no"), 0.5),
        TopicClosed("empty", 3, 180.0, taken=False),
        PassSkipped("bad"),
        *OF_JOBS,
    ):
        log.clock.now += 60
        log.tell(later)

    documented = {line.name: line for line in TABLE}
    for line in log.lines():
        kind = documented[line["event"]]
        if line.get("runner") != "bad":
            assert set(line) - {"event", "level", "timestamp"} == set(kind.fields), line
        assert line["level"] in (*kind.levels, "debug")
    assert set(log.names()) == set(documented)


def test_events_have_lines_of_their_own_when_asked() -> None:
    """One for each event that was published, with the broker's id of it."""
    log, quiet = Log(events=True), Log()
    log.tell(settled("orders"))
    quiet.tell(settled("orders"))

    batch, published = log.lines()
    assert batch["event"] == "batch"
    assert published["event"] == "event_published"
    assert (published["message_id"], published["sequence"], published["topic"]) == ("m1", 7, "orders")
    assert quiet.names() == ["batch"]


def test_ten_hours_without_a_database_are_some_six_hundred_lines() -> None:
    """The first failure at once, then a line a minute, then how long it was; and all of them at debug."""
    log, debug = Log(), Log("debug")
    failures = 10 * 360
    for each in (log, debug):
        for _ in range(failures):
            each.tell(PassFailed("publish", OSError("refused"), 0.1))
            each.clock.now += 10
        each.tell(PassFinished("publish", Report(), 0.1))

    names = log.names()
    assert names[0] == "pass_failed"
    assert set(names[1:-1]) == {"pass_failing"}
    assert 590 <= len(names) <= 610
    over = log.lines()[-1]
    assert (over["event"], over["failures"], over["seconds"]) == ("pass_recovered", failures, 36_000)
    assert len(debug.names()) == failures + 1


def test_an_outage_of_a_topic_is_told_by_the_topic() -> None:
    """Its requests fail with it, and say nothing of their own."""
    log = Log()
    error = BrokerError("UNAVAILABLE", "away")
    log.tell(RequestFailed("orders", [ROW], error))
    log.tell(TopicOpened("orders", error, 0.5))
    for probe in range(1, 61):
        log.clock.now += 10
        log.tell(RequestFailed("orders", [ROW], error))
        log.tell(TopicProbed("orders", error, probe, 10.0))
    log.tell(TopicClosed("orders", 61, 600.0))
    log.tell(settled("orders"))

    assert log.names() == ["publish_failed", "topic_failed", *["topic_failing"] * 10, "topic_recovered", "batch"]
    assert log.lines()[-2]["probes"] == 61


def test_recoveries_that_were_kept_back_are_told_each_with_its_own_fields() -> None:
    """A pass has no probes, and how many one topic had says nothing of another."""
    log = Log()
    error = BrokerError("UNAVAILABLE", "away")
    for _ in range(10):
        for topic in ("billing", "orders"):
            log.tell(TopicOpened(topic, error, 0.5))
            log.tell(TopicClosed(topic, 7, 1.0))
        log.tell(PassFailed("publish", OSError("refused"), 0.1))
        log.tell(PassFinished("publish", Report(), 0.1))
    told = len(log.lines())
    log.tell(ShutdownEnded((), 0.1))

    late = log.lines()[told:-1]
    assert [line["event"] for line in late] == ["pass_recovered", "topic_recovered", "topic_recovered"]
    assert [line for line in late if "probes" in line] == []
    assert {line["probes"] for line in log.lines()[:told] if line["event"] == "topic_recovered"} == {7}


@pytest.mark.parametrize(
    ("code", "word"),
    [
        ("NOT_FOUND", "python -m relay topics ensure orders"),
        ("INVALID_ARGUMENT", "correct RELAY_TOPIC, RELAY_ROUTES or the rows"),
        ("PERMISSION_DENIED", "roles/pubsub.publisher"),
        ("UNAUTHENTICATED", "GOOGLE_CREDENTIALS_JSON"),
    ],
)
def test_an_outage_names_its_remedy(code: str, word: str) -> None:
    """At three in the morning the line is what there is."""
    log = Log()
    log.tell(TopicOpened("orders", BrokerError(code, "no"), 0.5))

    assert word in log.lines()[0]["remedy"]


def test_a_hook_takes_out_what_it_wants() -> None:
    """It sees each line before it is written."""
    log = Log(redact=lambda line: line | {"aggregate_id": "?"})
    log.tell(RowRetried(ROW, "orders", 9, BrokerError("INTERNAL", "no"), 3, 5.0))

    assert log.lines()[0]["aggregate_id"] == "?"


@pytest.mark.parametrize("hook", [lambda _: 1 / 0, lambda _: None, lambda line: line.clear() or 1 / 0])
def test_a_hook_that_fails_costs_the_texts_and_not_the_line(hook: Any) -> None:
    """Never unredacted, never lost; and the fact is told once."""
    log = Log(redact=hook)
    log.tell(RowRetried(ROW, "orders", 9, BrokerError("INTERNAL", "no"), 3, 5.0))
    log.tell(PassSkipped("publish"))

    complaint, line, skipped = log.lines()
    assert complaint["event"] == "redaction_failed"
    assert not {"error", "aggregate_id", "aggregate_type", "event_type"} & set(line)
    assert (line["event"], line["level"], line["event_id"]) == ("row_retried", "warning", "0190-7")
    assert skipped["event"] == "pass_skipped"


def test_what_libraries_and_python_say_is_redacted_too() -> None:
    """Their texts, the errors among their arguments, and the errors that nobody caught."""
    program = """
import logging, sys
from relay.operate import logs
logs.adopt_libraries(sys.stderr, lambda line: line | {"seen": True})
library = logging.getLogger("library")
library.warning("at %s", "postgresql://app:hunter2@db/x")
try:
    raise ValueError("cannot read 'hunter2'")
except ValueError as error:
    library.exception("it failed: %s", error)
secret = "hunter2"
raise ValueError({"card": secret})
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=30, check=False
    )

    assert done.returncode == 1
    assert "hunter2" not in done.stderr
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [line["level"] for line in lines] == ["warning", "error", "critical"]
    assert all(line["seen"] for line in lines)
