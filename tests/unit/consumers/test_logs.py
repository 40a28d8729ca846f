"""Every event of consumers has its line, and no line says too much."""

import inspect
import io
import json
import subprocess
import sys
from dataclasses import asdict, is_dataclass, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from consumers import events, logs
from consumers.backlog import InboxStats, Queue, Spent
from consumers.events import (
    CANCELLED,
    ArtifactReused,
    ArtifactUploaded,
    ClaimMade,
    CompletionUnwritten,
    ConfirmFailed,
    ConnectionsFree,
    ConnectionsSpent,
    ConsumerStarted,
    ConsumerStats,
    ConsumerStopped,
    DeadLetterFailed,
    DeliveriesLost,
    DeliverySettled,
    Fate,
    HandlerOverdue,
    Heartbeat,
    HeartbeatFailed,
    InboxAway,
    InboxBack,
    InboxCleaned,
    JobsStarted,
    LeaseRecovered,
    Moved,
    NoteLost,
    OutcomeIgnored,
    PipelineFault,
    ProgressMade,
    ResultUnkept,
    RevisionRequeued,
    ScratchLeft,
    SettleFailed,
    SourceAway,
    SourceBack,
    StageEnded,
    StartWarning,
    StoreAway,
    StoreBack,
    Stored,
    Throttled,
    TicketsAsked,
    TicketSettled,
    UpkeepFailed,
    Verdict,
    WakeUpLost,
)
from consumers.line_table import LINES as TABLE
from consumers.received import Received, Undecodable
from idempotency import StoreUnavailableError
from relay.errors import BrokerError, ConfigurationError
from relay.kernel import log_output
from relay.kernel.observe import LoopDied, PassSkipped, ShutdownBegan, ShutdownEnded
from tests.support.commands import ROOT
from tests.support.job_events import EVENTS as OF_JOBS
from tests.support.job_events import PASSES

CARD = "card 4111 1111 1111 1111"
EVENT_ID = "01900000-0000-7000-8000-000000000007"
CREATED = datetime(2026, 1, 1, tzinfo=UTC)
EVENT = Received[Any](
    event_id=UUID(EVENT_ID),
    event_type="order.paid",
    version=1,
    occurred_at=CREATED,
    data={"card": CARD},
    aggregate_type="order",
    aggregate_id="42",
    created_at=CREATED,
    message_id="m1",
    attributes={"note": CARD},
)
NO_EVENT = Undecodable(
    code="NOT_JSON",
    reason="the body is not JSON",
    event_id="?",
    event_type="",
    aggregate_type="",
    aggregate_id="",
    created_at=None,
    message_id="m2",
    ordering_key="",
)
STARTED = ConsumerStarted("billing", "orders", "claim", "orders-dead-letters", ("order.*",), 50)
STATS = ConsumerStats("billing", "orders", {"done": 3}, 1, 2, 3, 6, 600, 1.5, True, True, 60.0)  # noqa: FBT003

INBOX = InboxStats(
    available=True,
    stored=5,
    not_stored={"duplicate": 1},
    claims=3,
    claimed={"ready": 4, "key": 1},
    conflicts=2,
    recovered=1,
    leases=9,
    queue=Queue(10_000, 12.34567, 9, 0, 4, ("due",)),
    connections=Spent(3, 1),
)

ABOUT = {
    "consumer": "billing",
    "event_id": EVENT_ID,
    "event_type": "order.paid",
    "aggregate_type": "order",
    "aggregate_id": "42",
    "created_at": "2026-01-01T00:00:00+00:00",
}


def settled(fate: Fate, **others: Any) -> DeliverySettled:
    """A delivery that came to this end."""
    return DeliverySettled("billing", others.pop("subject", EVENT), fate, 2, 0.12345, 1.23456, **others)


class _GoneError(Exception):
    """As psycopg has it: with a state of Postgres."""

    def __init__(self, sqlstate: str, text: str) -> None:
        super().__init__(text)
        self.sqlstate = sqlstate


def _gone(sqlstate: str = "57P01", text: str = "going away") -> Exception:
    error = StoreUnavailableError(f"the inbox was not reached: {text}")
    error.__cause__ = _GoneError(sqlstate, text)
    return error


SERVER_BACK = "none is needed when the server comes back; if it is up, see that DATABASE_URL leads to it from this host"
RECOVERED = {
    "level": "warning",
    "event": "lease_recovered",
    "consumer": "billing",
    "delivery_id": 7,
    "event_id": EVENT_ID,
    "event_type": "order.paid",
    "owner": "host:1:ab",
    "attempt": 2,
    "remedy": "see how its owner ended: killed, out of memory, cut off from the database, or with a handler that "
    "blocked the event loop for longer than INBOX_LEASE_MS",
}
FAILED = {"subscription": "orders", "message_id": "m1", "attempt": 2, "seconds": 0.123, "lag_seconds": 1.235}

LINES: list[tuple[object, dict[str, Any]]] = [
    (
        settled(Fate.RETRIED, code="503", reason="OSError: no answer", again_in=5.12345),
        {
            "level": "warning",
            "event": "delivery_failed",
            **ABOUT,
            **FAILED,
            "outcome": "retried",
            "code": "503",
            "error": "OSError: no answer",
            "raised_at": [],
            "again_in_seconds": 5.123,
            "consequence": "the event has one attempt less, and is handled again after the delay",
            "remedy": "none is needed where it passes; else see what the handler raised, and where",
        },
    ),
    (
        settled(Fate.DEAD, code="ValueError", error=ValueError(f"{CARD!r} is none")),
        {
            "level": "error",
            "event": "delivery_failed",
            **ABOUT,
            **FAILED,
            "outcome": "dead",
            "code": "ValueError",
            "error": "ValueError: '…' is none",
            "raised_at": [],
            "again_in_seconds": None,
            "consequence": "the event is in the dead-letter topic, and is not handled again unless it is replayed",
            "remedy": "mend what the error says; then `python -m consumers dead-letters replay` has it handled again",
        },
    ),
    (
        StartWarning("billing", "Redis evicts keys when its memory is full."),
        {
            "level": "warning",
            "event": "start_warning",
            "consumer": "billing",
            "warning": "Redis evicts keys when its memory is full.",
        },
    ),
    (
        HandlerOverdue("billing", EVENT, 45.0),
        {
            "level": "warning",
            "event": "handler_overdue",
            **ABOUT,
            "seconds": 45.0,
            "consequence": "a thread cannot be cancelled: its lease is kept, and its place is taken until it returns",
            "remedy": "give what the handler waits for a timeout of its own, or make it async def",
        },
    ),
    (
        OutcomeIgnored("billing", EVENT, "Done"),
        {
            "level": "warning",
            "event": "outcome_ignored",
            **ABOUT,
            "answer": "Done",
            "consequence": "the lease was lost before the handler answered: somebody else may have acted as well",
            "remedy": "where it is frequent, see that no handler blocks the event loop, that the store answers, or "
            "raise IDEMPOTENCY_LEASE",
        },
    ),
    (
        CompletionUnwritten("billing", EVENT, OSError("gone")),
        {
            "level": "error",
            "event": "completion_unwritten",
            **ABOUT,
            "code": "OSError",
            "error": "OSError: gone",
            "consequence": "the effect is there and the delivery acknowledged, but another delivery of the event "
            "would repeat the effect",
            "remedy": "none is needed unless the event is published again; see why the store was away",
        },
    ),
    (
        ResultUnkept("billing", EVENT, "Socket", TypeError("no JSON")),
        {
            "level": "warning",
            "event": "result_unkept",
            **ABOUT,
            "code": "TypeError",
            "error": "TypeError: no JSON",
            "kind": "Socket",
            "consequence": "the effect is there and the event completed, without what the handler returned",
            "remedy": "return nothing, an outcome, or what pydantic can write as JSON",
        },
    ),
    (
        PipelineFault("billing", EVENT, KeyError(CARD), 5.0),
        {
            "level": "error",
            "event": "pipeline_fault",
            **ABOUT,
            "code": "KeyError",
            "error": "KeyError",
            "raised_at": [],
            "again_in_seconds": 5.0,
            "consequence": "the delivery is given back and comes again; nothing is lost",
            "remedy": "this is a fault of the SDK, not of the handler: report it with this line",
        },
    ),
    (
        StoreAway("billing", OSError("refused"), 0.25),
        {
            "level": "error",
            "event": "store_failed",
            "consumer": "billing",
            "code": "OSError",
            "error": "OSError: refused",
            "again_in_seconds": 0.25,
            "consequence": "no event is begun until the store answers; deliveries are held, and none pays",
            "remedy": "none is needed when Redis comes back; else see that REDIS_URL leads to it from this host",
        },
    ),
    (
        SourceAway("billing", "orders", BrokerError("PERMISSION_DENIED", "no"), 1.0),
        {
            "level": "error",
            "event": "source_failed",
            "consumer": "billing",
            "subscription": "orders",
            "code": "PERMISSION_DENIED",
            "error": "BrokerError: PERMISSION_DENIED: no",
            "again_in_seconds": 1.0,
            "consequence": "no deliveries come in; the subscription keeps them, and is asked again and again",
            "remedy": "give this service account the role roles/pubsub.subscriber on subscription orders",
        },
    ),
    (
        SettleFailed("billing", "orders", "acknowledge", 12, BrokerError("UNAVAILABLE", "away")),
        {
            "level": "error",
            "event": "settle_failed",
            "consumer": "billing",
            "subscription": "orders",
            "operation": "acknowledge",
            "messages": 12,
            "code": "UNAVAILABLE",
            "error": "BrokerError: UNAVAILABLE: away",
            "consequence": "these messages are delivered again; what was acted on is recognised, unless dedup is none",
            "remedy": "none is needed when the broker comes back; else see whether this host reaches it",
        },
    ),
    (
        DeliveriesLost("billing", "orders", 3, "the deadline has passed"),
        {
            "level": "warning",
            "event": "deliveries_lost",
            "consumer": "billing",
            "subscription": "orders",
            "messages": 3,
            "error": "the deadline has passed",
            "consequence": "they come again, here or elsewhere, while their handlers may still run",
            "remedy": "where it is frequent, see that no handler blocks the event loop",
        },
    ),
    (
        DeadLetterFailed("billing", "orders-dead-letters", EVENT, BrokerError("NOT_FOUND", "no"), 10.0),
        {
            "level": "error",
            "event": "dead_letter_failed",
            **ABOUT,
            "topic": "orders-dead-letters",
            "code": "NOT_FOUND",
            "error": "BrokerError: NOT_FOUND: no",
            "again_in_seconds": 10.0,
            "consequence": "the delivery is held and not acknowledged, and is sent there again; nothing is lost",
            "remedy": "topic orders-dead-letters does not exist: create it by `python -m consumers dead-letters create "
            "module:name`",
        },
    ),
    (
        OutcomeIgnored("billing", EVENT, "Done", completed=True),
        {
            "level": "warning",
            "event": "outcome_ignored",
            **ABOUT,
            "answer": "Done",
            "consequence": "ctx.complete had completed the event, which stays completed",
            "remedy": "let nothing of the effect come after ctx.complete",
        },
    ),
    (
        Heartbeat("billing", 12),
        {"level": "debug", "event": "heartbeat", "consumer": "billing", "leases": 12},
    ),
    (
        HeartbeatFailed("billing", 12, _gone()),
        {
            "level": "error",
            "event": "heartbeat_failed",
            "consumer": "billing",
            "leases": 12,
            "code": "57P01",
            "error": "StoreUnavailableError: the inbox was not reached: 57P01: going away",
            "consequence": "leases that are not renewed in time end: others begin these deliveries then, and what "
            "these handlers do or answer does not count",
            "remedy": SERVER_BACK,
        },
    ),
    (
        Stored("billing", 490, 10, 0.01234),
        {
            "level": "debug",
            "event": "stored",
            "consumer": "billing",
            "stored": 490,
            "duplicates": 10,
            "seconds": 0.012,
        },
    ),
    (
        LeaseRecovered("billing", 7, EVENT_ID, "order.paid", 2, "host:1:ab", alone=True),
        {
            **RECOVERED,
            "alone": True,
            "consequence": "it has paid an attempt, for nothing else ran there, and is handled again by itself",
        },
    ),
    (
        LeaseRecovered("billing", 7, EVENT_ID, "order.paid", 2, "host:1:ab", alone=False),
        {
            **RECOVERED,
            "alone": False,
            "consequence": "it is handled again by itself, and has paid nothing: others ran beside it",
        },
    ),
    (
        ConnectionsSpent("billing", 4, 2),
        {
            "level": "warning",
            "event": "connections_spent",
            "consumer": "billing",
            "most": 4,
            "waiting": 2,
            "consequence": "handlers wait in ctx.transaction(), within their own time; readiness says so",
            "remedy": "raise INBOX_CONNECTIONS towards INBOX_CONCURRENCY, as far as the database has room; or open "
            "transactions later and end them sooner",
        },
    ),
    (
        ConnectionsFree("billing", 1.5),
        {"level": "info", "event": "connections_free", "consumer": "billing", "seconds": 1.5},
    ),
    (
        InboxCleaned("billing", 12, 0.25),
        {"level": "info", "event": "inbox_cleaned", "consumer": "billing", "deliveries": 12, "seconds": 0.25},
    ),
    (
        RevisionRequeued("billing", "order.*", 3, 12, 0.25),
        {
            "level": "info",
            "event": "revision_requeued",
            "consumer": "billing",
            "handler": "order.*",
            "revision": 3,
            "deliveries": 12,
            "seconds": 0.25,
        },
    ),
    (
        UpkeepFailed("billing", "inbox_cleaning", _gone()),
        {
            "level": "warning",
            "event": "upkeep_failed",
            "consumer": "billing",
            "operation": "inbox_cleaning",
            "code": "57P01",
            "error": "StoreUnavailableError: the inbox was not reached: 57P01: going away",
            "consequence": "deliveries are handled all the same; it is tried again, and goes on where it was",
            "remedy": SERVER_BACK,
        },
    ),
    (
        InboxAway("billing", "receive", _gone(), 0.25),
        {
            "level": "error",
            "event": "inbox_failed",
            "consumer": "billing",
            "operation": "receive",
            "code": "57P01",
            "error": "StoreUnavailableError: the inbox was not reached: 57P01: going away",
            "again_in_seconds": 0.25,
            "consequence": "nothing that arrives is stored or acknowledged; the subscription keeps it, and none pays",
            "remedy": SERVER_BACK,
        },
    ),
    (
        InboxAway("billing", "move", _gone(), 0.25),
        {
            "level": "error",
            "event": "inbox_failed",
            "consumer": "billing",
            "operation": "move",
            "code": "57P01",
            "error": "StoreUnavailableError: the inbox was not reached: 57P01: going away",
            "again_in_seconds": 0.25,
            "consequence": "nothing is taken out of the outbox, which keeps it",
            "remedy": SERVER_BACK,
        },
    ),
    (
        Moved("billing", 3, 6, 0.0123),
        {
            "level": "debug",
            "event": "moved",
            "consumer": "billing",
            "events": 3,
            "deliveries": 6,
            "seconds": 0.012,
        },
    ),
    (
        WakeUpLost("billing", OSError("deaf"), 30.0),
        {
            "level": "warning",
            "event": "wake_up_lost",
            "consumer": "billing",
            "code": "OSError",
            "error": "OSError: deaf",
            "again_in_seconds": 30.0,
            "consequence": "new events in the outbox are found by polls, every INBOX_POLL_MS, until notifications "
            "arrive",
            "remedy": "none is needed where a pooler is in between, or when the server comes back",
        },
    ),
    (
        InboxAway("billing", "claim", StoreUnavailableError("the process ends"), 5.0),
        {
            "level": "error",
            "event": "inbox_failed",
            "consumer": "billing",
            "operation": "claim",
            "code": "StoreUnavailableError",
            "error": "StoreUnavailableError: the process ends",
            "again_in_seconds": 5.0,
            "consequence": "no event is begun; what waits stays in the inbox, and none pays",
            "remedy": SERVER_BACK,
        },
    ),
    (
        TicketsAsked("billing", "push.due", 3, {"confirmed": 2, "open": 1}, 0.12345),
        {
            "level": "debug",
            "event": "tickets_asked",
            "consumer": "billing",
            "event_type": "push.due",
            "tickets": 3,
            "verdicts": {"confirmed": 2, "open": 1},
            "seconds": 0.123,
            "faults": 0,
        },
    ),
    (
        TicketSettled("billing", 7, EVENT_ID, "push.due", "phone 7", 2, Verdict.RETRIED, "OFF", "it is off", 5.0),
        {
            "level": "warning",
            "event": "send_failed",
            "consumer": "billing",
            "delivery_id": 7,
            "event_id": EVENT_ID,
            "event_type": "push.due",
            "outcome": "retried",
            "attempt": 2,
            "code": "OFF",
            "error": "it is off",
            "again_in_seconds": 5.0,
            "consequence": "it is sent again after the delay",
            "remedy": "none is needed where it passes; else see what the provider says of it",
        },
    ),
    (
        TicketSettled("billing", 7, EVENT_ID, "push.due", "phone 7", 2, Verdict.UNKNOWN, "UNKNOWN", "no verdict came"),
        {
            "level": "error",
            "event": "send_failed",
            "consumer": "billing",
            "delivery_id": 7,
            "event_id": EVENT_ID,
            "event_type": "push.due",
            "outcome": "unknown",
            "attempt": 2,
            "code": "UNKNOWN",
            "error": "no verdict came",
            "again_in_seconds": None,
            "consequence": "it has failed in the inbox, and is not sent again by itself",
            "remedy": "look it up at the provider by the delivery's ticket; whether it is sent again is for you to say",
        },
    ),
    (
        ConfirmFailed("billing", "push.due", 3, OSError("gone"), 30.0),
        {
            "level": "error",
            "event": "confirm_failed",
            "consumer": "billing",
            "event_type": "push.due",
            "tickets": 3,
            "code": "OSError",
            "error": "OSError: gone",
            "raised_at": [],
            "again_in_seconds": 30.0,
            "consequence": "nobody knows what became of these sends; they are asked about again until they are "
            "unknown, and not sent again",
            "remedy": "see what the function raised or answered, and whether the provider can be reached",
        },
    ),
    (
        Throttled("billing", "order.paid", 30.0),
        {
            "level": "info",
            "event": "throttled",
            "consumer": "billing",
            "event_type": "order.paid",
            "seconds": 30.0,
        },
    ),
    (
        JobsStarted(("job:ingest",), "public"),
        {"level": "info", "event": "jobs_started", "runners": ["job:ingest"], "schema": "public"},
    ),
    (STARTED, {"level": "info", "event": "consumer_started", **asdict(STARTED), "event_types": ["order.*"]}),
    (STATS, {"level": "info", "event": "consumer_stats", **asdict(STATS)}),
    (
        replace(STATS, inbox=INBOX),
        {
            "level": "info",
            "event": "consumer_stats",
            **asdict(STATS),
            "inbox": {
                "available": True,
                "stored": 5,
                "not_stored": {"duplicate": 1},
                "claims": 3,
                "claimed": {"ready": 4, "key": 1},
                "conflicts": 2,
                "recovered": 1,
                "leases": 9,
                "queue": {
                    "due": 10_000,
                    "oldest_due_seconds": 12.346,
                    "processing": 9,
                    "sent": 0,
                    "failed": 4,
                    "at_least": ["due"],
                },
                "connections": {"in_use": 3, "waiting": 1},
            },
        },
    ),
    (
        ConsumerStopped("billing", 1.23456, 4, ()),
        {
            "level": "info",
            "event": "consumer_stopped",
            "consumer": "billing",
            "seconds": 1.235,
            "released": 4,
            "abandoned": [],
        },
    ),
    (
        LoopDied("billing", OSError("gone")),
        {
            "level": "error",
            "event": "consumer_died",
            "consumer": "billing",
            "code": "OSError",
            "error": "OSError: gone",
            "raised_at": [],
            "consequence": "it receives no more, and a process of consumers ends; its deliveries come again",
        },
    ),
    (
        StageEnded("billing", EVENT, "upload", 1.23456, "503"),
        {"level": "warning", "event": "stage_failed", **ABOUT, "stage": "upload", "seconds": 1.235, "code": "503"},
    ),
    (
        StageEnded("billing", EVENT, "upload", 1.23456),
        {"level": "debug", "event": "stage_ended", **ABOUT, "stage": "upload", "seconds": 1.235, "code": ""},
    ),
    (
        StageEnded("billing", EVENT, "upload", 1.0, CANCELLED),
        {"level": "debug", "event": "stage_ended", **ABOUT, "stage": "upload", "seconds": 1.0, "code": CANCELLED},
    ),
    (
        ProgressMade("billing", EVENT, 12.345),
        {"level": "debug", "event": "progress_made", **ABOUT, "percent": 12.35},
    ),
    (
        ArtifactUploaded("billing", EVENT, "clips/42.mp4", 7, 1.23456),
        {
            "level": "debug",
            "event": "artifact_uploaded",
            **ABOUT,
            "artifact": "clips/42.mp4",
            "bytes": 7,
            "seconds": 1.235,
        },
    ),
    (
        ArtifactReused("billing", EVENT, "clips/42.mp4", 7),
        {"level": "debug", "event": "artifact_reused", **ABOUT, "artifact": "clips/42.mp4", "bytes": 7},
    ),
    (
        NoteLost("billing", EVENT, "stage", OSError(f"no {CARD!r}")),
        {
            "level": "warning",
            "event": "note_lost",
            **ABOUT,
            "note": "stage",
            "code": "OSError",
            "error": "OSError: no '…'",
            "consequence": "the handler goes on; the history of the delivery lacks this entry",
            "remedy": "none is needed when the database comes back; else see that it can be written to",
        },
    ),
    (
        ScratchLeft("billing", EVENT, PermissionError(13, "Permission denied")),
        {
            "level": "warning",
            "event": "scratch_left",
            **ABOUT,
            "code": "PermissionError",
            "error": "PermissionError: [Errno 13] Permission denied",
            "consequence": "its files take up space until a consumer starts again, a day after this process has ended",
            "remedy": "see who else writes to SCRATCH_DIR, and with which rights",
        },
    ),
    (ShutdownBegan("SIGTERM", 25.0), {"level": "info", "event": "shutdown", "reason": "SIGTERM", "soft_timeout": 25.0}),
    (
        ShutdownEnded(("billing.pdf of 7",), 27.0),
        {"level": "warning", "event": "stopped", "abandoned": ["billing.pdf of 7"], "seconds": 27.0},
    ),
]


class Clock:
    """Time that a test moves."""

    now = 1_000.0

    def __call__(self) -> float:
        """The time."""
        return self.now


class Log:
    """LogLines of a consumer that has started, its clock, and the lines that they left since."""

    def __init__(self, level: str = "info", *, started: bool = True, **options: Any) -> None:
        self.clock = Clock()
        self._stream = io.StringIO()
        self.tell = logs.LogLines(log_output.logger(level, self._stream), monotonic=self.clock, **options)
        if started:
            self.tell(STARTED)
            self._stream.truncate(0)
            self._stream.seek(0)

    def lines(self) -> list[dict[str, Any]]:
        """Every line so far."""
        return [json.loads(line) for line in self._stream.getvalue().splitlines()]

    def names(self) -> list[str]:
        """The kinds of the lines so far."""
        return [line["event"] for line in self.lines()]


@pytest.mark.parametrize(("event", "expected"), LINES, ids=lambda value: type(value).__name__)
def test_every_event_has_its_line(event: object, expected: dict[str, Any]) -> None:
    """One line with these fields, a level and a time; what the event carries is not among them."""
    log = Log("debug")
    log.tell(event)

    (line,) = log.lines()
    assert line.pop("timestamp").endswith("Z")
    assert line == expected
    assert CARD not in json.dumps(line)


def test_no_event_is_forgotten() -> None:
    """Whoever adds an event gives it a line, and its line a place in this test."""
    defined = {
        kind
        for _, kind in inspect.getmembers(events, inspect.isclass)
        if kind.__module__ == events.__name__ and is_dataclass(kind)
    }

    assert defined == {type(event) for event, _ in LINES if type(event).__module__ == events.__name__} | {
        StoreBack,  # these: below
        SourceBack,
        InboxBack,
        ClaimMade,  # counted, and no line: as many as there are deliveries
    }


@pytest.mark.parametrize("fate", Fate)
def test_every_fate_has_a_line(fate: Fate) -> None:
    """What failed always; what waits, at debug; all else where lines of events are asked for."""
    failed = {Fate.RETRIED, Fate.DEAD, Fate.INVALID, Fate.UNDECODABLE, Fate.LEASE_LOST}
    waits = {Fate.BUSY, Fate.HELD}
    quiet, talkative, debug = Log(), Log(events=True), Log("debug", events=True)
    for log in (quiet, talkative, debug):
        log.tell(settled(fate, reason=f"at {CARD!r}"))

    name = "delivery_failed" if fate in failed else "delivery_waits" if fate in waits else "delivery_settled"
    assert debug.names() == [name]
    assert debug.lines()[0]["outcome"] == fate.value
    assert CARD not in json.dumps(debug.lines())
    assert talkative.names() == ([] if fate in waits else [name])
    assert quiet.names() == ([name] if fate in failed else [])


def test_a_message_that_is_no_event_has_a_line_too() -> None:
    """With what its attributes said it was."""
    log = Log()
    log.tell(settled(Fate.UNDECODABLE, subject=NO_EVENT, code="NOT_JSON", reason="the body is not JSON"))

    (line,) = log.lines()
    assert (line["event_id"], line["created_at"], line["message_id"]) == ("?", None, "m2")
    assert (line["level"], line["code"], line["error"]) == ("error", "NOT_JSON", "the body is not JSON")


def test_a_failure_says_where_it_was_raised() -> None:
    """Modules and lines, enough to begin with; no value among them."""
    log = Log()
    try:
        json.loads(CARD)
    except json.JSONDecodeError as error:
        log.tell(settled(Fate.RETRIED, code="X", error=error))

    places = [place.partition(":")[0] for place in log.lines()[0]["raised_at"]]
    assert (places[0], places[-1]) == (__name__, "json.decoder")


def test_a_failure_without_a_code_has_one_all_the_same() -> None:
    """Of its error, or its outcome's name."""
    log = Log()
    log.tell(settled(Fate.LEASE_LOST))
    log.tell(settled(Fate.LEASE_LOST, error=OSError("x")))

    assert [line["code"] for line in log.lines()] == ["LEASE_LOST", "OSError"]


@pytest.mark.parametrize(
    ("fate", "code", "word"),
    [
        (Fate.RETRIED, "NEWER_VERSION", "deploy a handler of this version"),
        (Fate.RETRIED, "TIMEOUT", "timeout"),
        (Fate.DEAD, "EXPIRES", "have the subscription keep messages for longer"),
        (Fate.DEAD, "DEFERRED_TOO_OFTEN", "see what the handler waits for, or raise INBOX_MAX_DEFERS"),
        (Fate.DEAD, "UNKNOWN_EVENT_TYPE", "deploy a handler for this type"),
        (Fate.DEAD, "NO_UPCASTER", "upcaster"),
        (Fate.INVALID, "INVALID_DATA", "correct the producer, or the model"),
        (Fate.UNDECODABLE, "NOT_JSON", "who publishes to the topic"),
    ],
)
def test_a_failure_names_its_remedy(fate: Fate, code: str, word: str) -> None:
    """At three in the morning the line is what there is."""
    log = Log()
    log.tell(settled(fate, code=code))

    assert word in log.lines()[0]["remedy"]


def _caused(message: str, cause: Exception) -> Exception:
    error = RuntimeError(message)
    error.__cause__ = cause
    return error


class AuthenticationError(Exception):
    """As the client of Redis has it."""


@pytest.mark.parametrize(
    ("cause", "word"),
    [
        (AuthenticationError("invalid username-password pair"), "the user and the password in REDIS_URL"),
        (OSError("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate"), "REDIS_TLS_VERIFY=off"),
        (RuntimeError("OOM command not allowed"), "Redis is full"),
        (OSError("refused"), "none is needed when Redis comes back"),
    ],
)
def test_a_store_that_is_away_names_its_remedy(cause: Exception, word: str) -> None:
    """By what came of it, however deep."""
    log = Log()
    log.tell(StoreAway("billing", _caused("Redis could not be asked", _caused("again", cause)), 0.25))

    assert word in log.lines()[0]["remedy"]


@pytest.mark.parametrize(
    ("cause", "word"),
    [
        (_GoneError("42P01", "relation does not exist"), "python -m consumers migrate"),
        (_GoneError("42501", "permission denied"), "grant the role"),
        (_GoneError("53300", "too many clients"), "max_connections"),
        (_GoneError("53100", "no space left"), "make room"),
        (_GoneError("25006", "cannot execute in a read-only transaction"), "lead to the primary"),
        (_GoneError("57014", "statement timeout"), "pg_stat_activity"),
        (ConfigurationError("password authentication failed for user"), "the user and the password in DATABASE_URL"),
        (ConfigurationError("database x does not exist"), "correct DATABASE_URL"),
        (TimeoutError(), "none is needed when the server comes back"),
    ],
)
def test_an_inbox_that_is_away_names_its_remedy(cause: Exception, word: str) -> None:
    """The same for all that it is asked, and for its words as a store."""
    error = _caused("the inbox was not reached", cause)
    log = Log(started=False)
    log.tell(replace(STARTED, dedup="inbox"))
    for each in (
        InboxAway("billing", "claim", error, 1.0),
        HeartbeatFailed("billing", 1, error),
        StoreAway("billing", error, 1.0),
    ):
        log.tell(each)

    assert [word in line["remedy"] for line in log.lines()[1:]] == [True] * 3


@pytest.mark.parametrize("fate", [Fate.DEAD, Fate.INVALID])
def test_what_fails_with_an_inbox_is_no_dead_letter(fate: Fate) -> None:
    """It is a row, and another command has it handled again."""
    log = Log(started=False)
    log.tell(replace(STARTED, dedup="inbox"))
    log.tell(settled(fate))
    log.tell(settled(Fate.UNDECODABLE, subject=NO_EVENT))
    log.tell(settled(Fate.LEASE_LOST))

    failed, undecodable, lost = log.lines()[1:]
    assert "stays in the inbox" in failed["consequence"]
    assert "python -m consumers deliveries retry EVENT_ID" in failed["remedy"]
    assert "dead-letter topic" in undecodable["consequence"]
    assert lost["remedy"].endswith("INBOX_LEASE_MS")


def test_a_row_of_the_outbox_that_is_no_event_is_no_dead_letter() -> None:
    """Without a broker there is no topic that it could be in, and nobody who publishes to one."""
    log = Log(started=False)
    log.tell(replace(STARTED, dedup="inbox", subscription="outbox", dead_letter_topic=""))
    log.tell(settled(Fate.UNDECODABLE, subject=NO_EVENT))

    undecodable = log.lines()[1]
    assert "stays in the inbox" in undecodable["consequence"]
    assert "writes to the outbox" in undecodable["remedy"]


def test_an_inbox_that_is_away_is_told_for_each_operation() -> None:
    """Claiming may work again while receiving does not yet."""
    log = Log()
    for operation in ("receive", "claim"):
        for _ in range(5):
            log.tell(InboxAway("billing", operation, _gone(), 1.0))
    log.tell(InboxBack("billing", "claim", 3.0))

    assert [(line["event"], line["operation"]) for line in log.lines()] == [
        ("inbox_failed", "receive"),
        ("inbox_failed", "claim"),
        ("inbox_recovered", "claim"),
    ]
    assert log.lines()[-1]["consumer"] == "billing"


def test_heartbeats_that_fail_are_told_once_and_when_it_is_over() -> None:
    """What goes well is a line at level debug."""
    log = Log()
    log.tell(Heartbeat("billing", 3))
    for _ in range(4):
        log.tell(HeartbeatFailed("billing", 3, _gone()))
        log.clock.now += 30
    log.tell(Heartbeat("billing", 3))

    assert log.names() == ["heartbeat_failed", "heartbeat_failing", "heartbeat_recovered"]
    assert log.lines()[-1]["failures"] == 4


def test_a_night_without_redis_is_a_line_a_minute() -> None:
    """The first failure at once, a summary a minute, and how long it was; all of them at debug."""
    log, debug = Log(), Log("debug")
    for each in (log, debug):
        for _ in range(7_200):
            each.tell(StoreAway("billing", OSError("refused"), 5.0))
            each.clock.now += 5
        each.tell(StoreBack("billing", 36_000.0))

    names = log.names()
    assert (names[0], set(names[1:-1]), names[-1]) == ("store_failed", {"store_failing"}, "store_recovered")
    assert 590 <= len(names) <= 610
    over = log.lines()[-1]
    assert (over["consumer"], over["failures"], over["seconds"]) == ("billing", 7_200, 36_000)
    assert len(debug.names()) == 7_201


def test_a_subscription_and_a_dead_letter_topic_recover_too() -> None:
    """The first when it is read again, the second when it took a message."""
    log = Log()
    log.tell(SourceAway("billing", "orders", BrokerError("UNAVAILABLE", "away"), 1.0))
    log.tell(SourceBack("billing", "orders", 2.0))
    log.tell(DeadLetterFailed("billing", "dead", EVENT, BrokerError("UNAVAILABLE", "away"), 10.0))
    log.tell(settled(Fate.DONE))
    log.tell(settled(Fate.DEAD))

    assert log.names() == [
        "source_failed",
        "source_recovered",
        "dead_letter_failed",
        "delivery_failed",
        "dead_letter_recovered",
    ]


def test_a_failure_in_an_inbox_says_nothing_of_the_dead_letter_topic() -> None:
    """Only what is no event goes there."""
    log = Log(started=False)
    log.tell(replace(STARTED, dedup="inbox"))
    log.tell(DeadLetterFailed("billing", "dead", EVENT, BrokerError("UNAVAILABLE", "away"), 10.0))
    log.tell(settled(Fate.DEAD))
    assert "dead_letter_recovered" not in log.names()

    log.tell(settled(Fate.UNDECODABLE, subject=NO_EVENT))
    assert log.names()[-1] == "dead_letter_recovered"


def test_acknowledgements_that_fail_are_summed_up_until_a_minute_without() -> None:
    """What succeeds is not told: after a while a failure is a new one."""
    log = Log()
    failure = SettleFailed("billing", "orders", "extend", 1, BrokerError("UNAVAILABLE", "away"))
    for _ in range(10):
        log.tell(failure)
        log.clock.now += 10
    assert log.names() == ["settle_failed", "settle_failing"]
    log.clock.now += 120
    log.tell(failure)

    assert log.names() == ["settle_failed", "settle_failing", "settle_failed"]


def test_a_confirming_function_recovers_for_its_type_when_it_answers_without_a_fault() -> None:
    """An answer that was wrong in part is none."""
    log = Log()
    log.tell(ConfirmFailed("billing", "push.due", 1, OSError("gone"), 30.0))
    log.tell(TicketsAsked("billing", "push.due", 3, {"confirmed": 2, "open": 1}, 0.1, faults=1))
    log.tell(TicketsAsked("billing", "mail.due", 3, {"confirmed": 3}, 0.1))
    assert log.names() == ["confirm_failed"]
    log.tell(TicketsAsked("billing", "push.due", 3, {"confirmed": 3}, 0.1))
    assert log.names() == ["confirm_failed", "confirm_recovered"]
    assert log.lines()[-1]["event_type"] == "push.due"


@pytest.mark.parametrize("verdict", [each for each in Verdict if each not in (Verdict.OPEN, Verdict.LOST)])
def test_every_verdict_has_a_line(verdict: Verdict) -> None:
    """What failed always, what arrived where lines of events are asked for; the recipient is in none."""
    quiet, talkative = Log(), Log(events=True)
    for log in (quiet, talkative):
        log.tell(TicketSettled("billing", 7, EVENT_ID, "push.due", "phone 7", 1, verdict, "CODE", "why"))
    assert quiet.names() == ([] if verdict is Verdict.CONFIRMED else ["send_failed"])
    assert talkative.names() == ["send_confirmed" if verdict is Verdict.CONFIRMED else "send_failed"]
    assert "phone" not in json.dumps(talkative.lines())


def _fails_on_throttles(line: dict[str, Any]) -> dict[str, Any]:
    if line["event"] == "throttled":
        raise ValueError
    return line


def test_every_line_has_the_documented_fields() -> None:
    """Those of one table, which the documentation shows; neither more nor less, whatever happened."""
    log = Log("debug", started=False, events=True, redact=_fails_on_throttles)
    log.tell(STARTED)
    failures = StoreAway | SourceAway | SettleFailed | DeadLetterFailed | HeartbeatFailed | InboxAway | ConfirmFailed
    again = [event for event, _ in LINES if isinstance(event, failures)]
    for event, _ in LINES:
        log.tell(event)
    for fate in Fate:
        log.tell(settled(fate))
    for _ in range(3):
        log.clock.now += 59
        for event in again:
            log.tell(event)
    log.tell(StoreBack("billing", 60.0))
    log.tell(SourceBack("billing", "orders", 60.0))
    log.tell(InboxBack("billing", "claim", 60.0))
    log.tell(Heartbeat("billing", 3))
    log.tell(TicketsAsked("billing", "push.due", 1, {"confirmed": 1}, 0.1))
    log.tell(TicketSettled("billing", 7, EVENT_ID, "push.due", "phone 7", 1, Verdict.CONFIRMED))
    for each in (*OF_JOBS, *PASSES):
        log.clock.now += 1
        log.tell(each)

    documented = {line.name: line for line in TABLE}
    for line in log.lines():
        kind = documented[line["event"]]
        if line["event"] != "throttled":
            assert set(line) - {"event", "level", "timestamp"} == set(kind.fields), line
        assert line["level"] in (*kind.levels, "debug")
    assert set(log.names()) == set(documented)


def test_a_hook_that_fails_costs_the_texts_and_not_the_line() -> None:
    """Whose it is and what became of it are no texts of anybody."""
    log = Log(redact=_fails_on_delivery)
    log.tell(settled(Fate.RETRIED, code="503", reason="no answer"))

    complaint, line = log.lines()
    assert complaint["event"] == "redaction_failed"
    assert not {"error", "aggregate_id", "event_type"} & set(line)
    assert (line["event_id"], line["consumer"], line["outcome"], line["code"]) == (
        EVENT_ID,
        "billing",
        "retried",
        "503",
    )


def _fails_on_delivery(line: dict[str, Any]) -> dict[str, Any]:
    if line["event"] == "delivery_failed":
        raise ValueError
    return line


def test_an_event_of_somebody_else_leaves_no_line() -> None:
    """Other listeners have events of their own."""
    log = Log("debug")
    log.tell(object())
    log.tell(PassSkipped("publish"))
    assert log.lines() == []


def _run(program: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout == ""
    return [json.loads(line) for line in done.stderr.splitlines()]


def test_what_handlers_log_has_the_form_of_our_lines() -> None:
    """From the level on, redacted, with the traceback of an error and none of its values."""
    careful, failed = _run("""
import structlog, sys
from relay.kernel import log_output
log_output.adopt_structlog("info", sys.stderr, lambda line: line | {"seen": True}, "eu-1")
log = structlog.get_logger("consumers").bind(event_id="7")
log.debug("not this")
log.warning("careful", order=1)
try:
    raise ValueError("cannot read '4111'")
except ValueError:
    log.exception("it failed")
""")
    assert (careful["event"], careful["level"], careful["event_id"], careful["order"]) == ("careful", "warning", "7", 1)
    assert (careful["seen"], careful["app"]) == (True, "eu-1")
    assert failed["exception"].endswith("ValueError: cannot read '…'")


def test_a_process_that_has_configured_structlog_keeps_it() -> None:
    """Its author has said what lines look like."""
    (line,) = _run("""
import structlog, sys
from relay.kernel import log_output
structlog.configure(
    processors=[structlog.processors.JSONRenderer()], logger_factory=structlog.PrintLoggerFactory(sys.stderr)
)
log_output.adopt_structlog("info", sys.stderr)
structlog.get_logger("consumers").info("mine")
""")
    assert line == {"event": "mine"}
