"""What the doctor makes of what it sees, where no server can be made to show it."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from relay.brokers.pubsub_access import Access, TopicAccess
from relay.errors import BrokerError
from relay.operate.doctor import Finding, Report, Status, findings
from relay.operate.doctor.broker import judge_error, judge_topic
from relay.operate.doctor.findings import Check, examine, ok
from relay.operate.doctor.look import span
from relay.operate.doctor.outbox import judge_vacuum, objects_of_schema
from relay.operate.doctor.server import (
    judge_clock,
    judge_connections,
    judge_encoding,
    judge_holder,
    judge_horizon,
    judge_pooler,
    judge_standby,
    judge_timeouts,
    judge_version,
)
from relay.outbox import schema

VACUUM: dict[str, Any] = {"on_server": True, "on_table": True, "dead": 0, "live": 0, "seconds_since": None}


def worst(found: Sequence[Finding]) -> str:
    """The statuses, told apart."""
    return " ".join(finding.status.value for finding in found)


@pytest.mark.parametrize(
    ("number", "status"),
    [(130_022, "fail"), (140_000, "ok"), (150_007, "ok"), (180_006, "ok"), (190_000, "warn")],
)
def test_versions_from_14_to_18_are_known(number: int, status: str) -> None:
    """Older ones cannot be worked with; newer ones were not tried."""
    assert judge_version(number, "x").status.value == status


def test_events_are_utf8() -> None:
    """Whatever else cannot store some of them."""
    assert judge_encoding("UTF8").status is Status.OK
    assert judge_encoding("SQL_ASCII").status is Status.FAIL


def test_a_standby_takes_no_writes() -> None:
    """A URL that names one looks right and works for no one."""
    assert judge_standby(standby=False).status is Status.OK
    assert judge_standby(standby=True).status is Status.FAIL


def test_a_pooler_is_seen_by_the_process_id_that_it_invents() -> None:
    """It is no fault; what it asks for is said."""
    assert "none" in judge_pooler(17, 17).found
    assert "statement pooling does not" in judge_pooler(17, 18).found


@pytest.mark.parametrize(
    ("ahead", "uncertainty", "status"),
    [(0.9, 0, "ok"), (-0.9, 0, "ok"), (1.1, 0, "warn"), (-1.1, 0, "warn"), (3.0, 2.5, "ok"), (-400, 0.1, "warn")],
)
def test_clocks_may_differ_by_a_second_and_by_what_the_question_took(
    ahead: float, uncertainty: float, status: str
) -> None:
    """A slow answer proves nothing."""
    assert judge_clock(ahead, uncertainty).status.value == status


@pytest.mark.parametrize(
    ("most", "used", "of_role", "used_by_role", "status"),
    [
        (97, 20, -1, 1, "ok"),
        (97, 90, -1, 1, "warn"),
        (97, 20, 20, 3, "ok"),
        (97, 20, 10, 3, "warn"),
        (1, 9, 0, 9, "warn"),
    ],
)
def test_connections_are_to_be_left(most: int, used: int, of_role: int, used_by_role: int, status: str) -> None:
    """Of the server's and of the role's own."""
    assert judge_connections(most, used, of_role, used_by_role).status.value == status


@pytest.mark.parametrize(
    ("limits", "statuses"),
    [
        ({}, "ok"),
        ({"transaction_timeout": 0, "idle_session_timeout": 0, "statement_timeout": 5}, "ok"),
        ({"transaction_timeout": 10_000}, "fail"),
        ({"transaction_timeout": 15_000}, "fail"),
        ({"transaction_timeout": 18_000}, "warn"),
        ({"transaction_timeout": 60_000}, "ok"),
        ({"idle_session_timeout": 5_000}, "warn"),
        ({"transaction_timeout": 10_000, "idle_session_timeout": 5_000}, "fail warn"),
    ],
)
def test_timeouts_must_not_end_a_batch(limits: dict[str, int], statuses: str) -> None:
    """One within the publish budget has the same events published for ever."""
    assert worst(judge_timeouts(limits, 15_000, 20_000)) == statuses


@pytest.mark.parametrize(
    ("kind", "seconds", "xids", "active", "status"),
    [
        ("transaction", 10.0, None, True, None),
        ("transaction", 400.0, None, True, "warn"),
        ("prepared transaction", 400.0, None, True, "warn"),
        ("replication slot", None, 5, True, None),
        ("replication slot", None, None, True, None),
        ("replication slot", None, 50_000_000, True, "warn"),
        ("replication slot", None, None, False, "warn"),
    ],
)
def test_who_keeps_old_rows_is_named(
    kind: str,
    seconds: float | None,
    xids: int | None,
    active: bool,  # noqa: FBT001 -- a column of the table above
    status: str | None,
) -> None:
    """With what to do about it."""
    found = judge_holder(kind, "n", seconds, xids, active=active)
    assert (found and found.status.value) == status


def test_of_many_old_transactions_the_worst_are_named() -> None:
    """And what a role cannot see is not claimed to be well."""
    found = judge_holder("transaction", "n", 400.0, None, active=True)
    assert found is not None
    assert len(judge_horizon([found] * 9, 0)) == 3
    assert "4 sessions are others'" in judge_horizon([], 4)[0].found


@pytest.mark.parametrize(
    ("facts", "status"),
    [
        ({}, "ok"),
        ({"on_server": False}, "fail"),
        ({"on_table": False}, "fail"),
        ({"dead": 200_000, "live": 100}, "warn"),
        ({"dead": 200_000, "live": 300_000}, "ok"),
        ({"dead": 200_000, "live": 100, "seconds_since": 60.0}, "ok"),
        ({"dead": 200_000, "live": 100, "seconds_since": 7_200.0}, "warn"),
    ],
)
def test_dead_rows_are_to_be_taken_away(facts: dict[str, Any], status: str) -> None:
    """By autovacuum, and lately where there are many."""
    assert judge_vacuum(VACUUM | facts)[0].status.value == status


@pytest.mark.parametrize(
    ("access", "status"),
    [
        (Access.GRANTED, "ok"),
        (Access.UNKNOWN, "ok"),
        (Access.MISSING, "fail"),
        (Access.REFUSED, "fail"),
        (Access.HIDDEN, "fail"),
    ],
)
def test_a_topic_must_be_there_and_take_messages(access: Access, status: str) -> None:
    """What cannot be seen with publish rights alone is no fault."""
    assert judge_topic(TopicAccess("projects/p/topics/t", access)).status.value == status


@pytest.mark.parametrize(
    ("code", "status"), [("UNAUTHENTICATED", "fail"), ("UNAVAILABLE", "fail"), ("RESOURCE_EXHAUSTED", "warn")]
)
def test_a_broker_that_does_not_answer_is_told_by_its_own_words(code: str, status: str) -> None:
    """A quota passes by itself; the others do not."""
    found = judge_error("t", BrokerError(code, "why"))
    assert found.status.value == status
    assert "why" in found.found


def test_what_the_migrations_make_is_what_must_be_there() -> None:
    """Read from them, so that it is never another list."""
    wanted = set(objects_of_schema(schema.newest()))
    assert {
        ("table", "outbox_events"),
        ("table", "outbox_migrations"),
        ("index", "outbox_events_fresh"),
        ("index", "outbox_events_event_id"),
        ("function", "outbox_emit"),
    } <= wanted


async def test_a_check_that_breaks_or_hangs_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a finding itself, and the next one is made."""
    monkeypatch.setattr(findings, "CHECK_SECONDS", 0.01)

    async def breaks() -> Sequence[Finding]:
        raise RuntimeError("a bug")

    async def hangs() -> Sequence[Finding]:
        await asyncio.Event().wait()
        raise AssertionError

    async def works() -> Sequence[Finding]:
        return (ok("c", "fine"),)

    told: list[Finding] = []
    report = await examine([Check("a", breaks), Check("b", hangs), Check("c", works)], told.append)

    assert [str(finding).partition(";")[0] for finding in told] == [
        "fail  a: could not be looked at: RuntimeError: a bug",
        "fail  b: could not be looked at: no answer within 0 s",
        "ok    c: fine",
    ]
    assert report.findings == tuple(told)
    assert not report.passed
    assert report.as_json()["findings"][2] == {"check": "c", "status": "ok", "found": "fine"}


def test_warnings_fail_nothing() -> None:
    """They are for whoever has the time."""
    assert Report((ok("a", "fine"), Finding("b", Status.WARN, "odd", "look"))).passed


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.25, "0.2 s"), (45, "45 s"), (119, "119 s"), (120, "2 min"), (7_200, "2 h"), (200_000, "2 d")],
)
def test_times_are_said_as_people_say_them(seconds: float, said: str) -> None:
    """In the unit in which there are at least two."""
    assert span(seconds) == said
