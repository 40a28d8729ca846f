"""Failed rows: what is chosen, what an action leaves behind, and operators and relays at the same time."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
from psycopg import errors as pg

from relay import emit
from relay.errors import ConfigurationError, MigrationError, OperateError
from relay.operate import failed
from relay.outbox import schema
from relay.outbox.actions import Operator
from relay.outbox.failed import START, Action, FailedRows, Filter, Named
from relay.outbox.grants import Role
from relay.outbox.queue import look
from relay.postgres.connect import connect_async
from tests.support.outbox import count, event
from tests.support.roles_of_tests import ROLES, as_emitter, as_relay

ROUTING: dict[str, Any] = {"patterns": ["invoice.%"], "pattern_topics": ["invoices"], "default_topic": "rest"}
ANA = Operator("ana", "the broker is back")


def fail(url: str, condition: str = "true", reason: str = "max_attempts", code: str = "INTERNAL") -> None:
    """Have rows fail as the relay does."""
    with psycopg.connect(url) as connection:
        connection.execute(
            f"""update outbox_events set failed_at = clock_timestamp(), failure_reason = %s, attempt_count = 25,
                       last_error_code = %s, last_error = 'boom', blocks_key = ordering_key is not null
                 where {condition}""".encode(),  # noqa: S608 -- a test's own words
            (reason, code),
        )


def store(url: str, *events: Any) -> None:
    """Emit and commit."""
    with psycopg.connect(as_emitter(url)) as connection:
        emit(connection, list(events))


@pytest.fixture
async def rows(database: str) -> AsyncIterator[FailedRows]:
    """The failed rows of an empty outbox."""
    async with await connect_async(as_relay(database)) as connection:
        yield FailedRows(connection, "public", ROUTING)


async def chosen(rows: FailedRows, **wanted: Any) -> list[str]:
    """Whom a filter means."""
    return [row.aggregate_id for row in await rows.page(Filter(**wanted), 100)]


async def test_a_filter_means_what_it_says_and_discarded_rows_only_by_name(rows: FailedRows, database: str) -> None:
    """Topics are those that rows go to, by their routes too."""
    store(database, event(1, topic="named"), event(2, event_type="invoice.paid"), event(3), event(4), event(5))
    for number, reason, code in ((1, "max_attempts", "A"), (2, "max_attempts", "B"), (3, "non_retryable", "A")):
        fail(database, f"aggregate_id = '{number}'", reason, code)
    fail(database, "aggregate_id = '4'", "discarded")

    assert await chosen(rows) == ["1", "2", "3"]
    assert await chosen(rows, code="A") == ["1", "3"]
    assert await chosen(rows, code="A", reason="non_retryable") == ["3"]
    assert await chosen(rows, reason="discarded") == ["4"]
    assert await chosen(rows, topic="named") == ["1"]
    assert await chosen(rows, topic="invoices") == ["2"]
    assert await chosen(rows, topic="rest") == ["3"]
    assert await chosen(rows, type="invoice.paid", aggregate_type="order", aggregate_id="2") == ["2"]
    now, _, _ = await rows.start()
    assert await chosen(rows, since=now) == []
    assert await chosen(rows, until=now) == ["1", "2", "3"]


async def test_pages_follow_each_other_without_a_gap(rows: FailedRows, database: str) -> None:
    """Rows that failed in the same moment are told apart by their ids."""
    store(database, *map(event, range(7)))
    fail(database)

    after, seen = START, []
    while page := await rows.page(Filter(), 2, after):
        seen += [row.aggregate_id for row in page]
        after = failed.cursor_read(failed.cursor_written(page[-1]))

    assert seen == [str(number) for number in range(7)]
    for wrong in ("yesterday", "2024-99-99T00:00:00/5", "2024-01-31T12:00:00+16:00/5", "0000-01-01T00:00:00+00/5"):
        with pytest.raises(ConfigurationError, match="copy it from the end of the page before"):
            failed.cursor_read(wrong)
    for right in ("-infinity/0", "2024-01-31T12:00:00.5+00/5", "2024-01-31 12:00:00-05:30/5"):
        assert await rows.page(Filter(), 1, failed.cursor_read(right))


async def test_a_retried_row_has_all_its_attempts_and_a_record(rows: FailedRows, database: str) -> None:
    """It is due at once and marked as put back, one with a key too; its last error stays readable."""
    store(database, event(1), event(2, ordering_key="k"))
    fail(database)

    done = await failed.act(rows, Action.RETRY, Filter(), ANA)

    assert (done.chosen, done.acted, done.skipped, done.ordered, done.blocking) == (2, 2, 0, 1, 1)
    with psycopg.connect(database) as connection:
        after = connection.execute(
            """select failed_at, failure_reason, blocks_key, attempt_count, last_error_code,
                      available_at > '-infinity', available_at <= clock_timestamp() from outbox_events order by id"""
        ).fetchall()
        recorded = connection.execute(
            """select action, acted_by, acted_as, why, failure_reason, attempt_count, last_error_code,
                      count(*) over (partition by action_id) from outbox_actions order by row_id"""
        ).fetchall()
    assert after == [(None, None, False, 0, "INTERNAL", True, True)] * 2
    assert (
        recorded
        == [("retry", "ana", ROLES.name(Role.RELAY), "the broker is back", "max_attempts", 25, "INTERNAL", 2)] * 2
    )


async def test_a_discarded_row_is_kept_and_holds_nothing_up(rows: FailedRows, database: str) -> None:
    """It is not failed any more, is not discarded twice, and comes back only when it is asked for."""
    store(database, event(1, ordering_key="k"), event(2))
    fail(database)

    assert (await failed.act(rows, Action.DISCARD, Filter(), ANA)).acted == 2
    assert count(database, "failure_reason = 'discarded' and not blocks_key and failed_at is not null") == 2
    assert (await failed.act(rows, Action.RETRY, Filter(), ANA)).chosen == 0
    again = await failed.act(rows, Action.DISCARD, Filter(reason="discarded"), ANA)
    assert (again.acted, again.skipped) == (0, 2)
    assert (await failed.act(rows, Action.RETRY, Filter(reason="discarded"), ANA)).acted == 2


async def test_a_dry_run_changes_nothing(rows: FailedRows, database: str) -> None:
    """It counts what would be tried."""
    store(database, event(1), event(2))
    fail(database, "aggregate_id = '1'")

    assert (await failed.choose(rows, Action.RETRY, Filter())).chosen == 1
    assert count(database, "failed_at is not null") == 1


async def test_a_dry_run_by_name_counts_what_the_command_would_change(rows: FailedRows, database: str) -> None:
    """A row that has not failed is skipped by both; one that was discarded can be retried, and not discarded again."""
    store(database, event(1), event(2, ordering_key="k"), event(3, ordering_key="k"))
    fail(database, "aggregate_id = '1'")
    fail(database, "aggregate_id = '2'", "discarded")
    with psycopg.connect(database) as connection:
        ids = [row_id for (row_id,) in connection.execute("select id from outbox_events").fetchall()]

    for action, expected in ((Action.DISCARD, (1, 2, 0)), (Action.RETRY, (2, 1, 1))):
        tried = await failed.choose(rows, action, Named(ids, []))
        assert (tried.chosen, tried.skipped, tried.ordered) == expected
    for action, expected in ((Action.DISCARD, (1, 2, 0)), (Action.RETRY, (2, 1, 1))):
        done = await failed.act(rows, action, Named(ids, []), ANA)
        assert (done.acted, done.skipped, done.ordered) == expected


async def test_rows_are_named_by_either_id_and_a_name_that_nobody_has_is_said(rows: FailedRows, database: str) -> None:
    """A row that has not failed is found, and left alone."""
    store(database, event(1), event(2), event(3))
    fail(database, "aggregate_id <> '3'")
    first, second = await rows.page(Filter(), 10)
    with psycopg.connect(database) as connection:
        (pending,) = connection.execute("select id from outbox_events where failed_at is null").fetchone() or (0,)

    done = await failed.act(rows, Action.RETRY, failed.names_of([str(first.id), second.event_id, str(pending)]), ANA)

    assert (done.acted, done.skipped) == (2, 1)
    with pytest.raises(OperateError, match="has no row 99"):
        await failed.act(rows, Action.RETRY, Named([99], []), ANA)
    with pytest.raises(ConfigurationError, match="'x1' is neither the id of a row nor an event_id"):
        failed.names_of(["x1"])


async def test_of_two_operators_each_row_has_one(rows: FailedRows, database: str) -> None:
    """Whoever comes second finds the row changed: it is skipped, and recorded once."""
    store(database, *map(event, range(200)))
    fail(database)

    async with await connect_async(database) as connection:
        other = FailedRows(connection, "public", ROUTING)
        one, two = await asyncio.gather(
            failed.act(rows, Action.RETRY, Filter(), ANA), failed.act(other, Action.DISCARD, Filter(), ANA)
        )

    assert one.acted + two.acted == 200
    assert count(database, "failed_at is null") == one.acted
    with psycopg.connect(database) as connection:
        recorded = connection.execute("select count(*), count(distinct row_id) from outbox_actions").fetchone()
    assert recorded == (200, 200)


async def test_a_row_that_failed_anew_since_it_was_chosen_is_left_alone(rows: FailedRows, database: str) -> None:
    """It is not the failure that the operator saw."""
    store(database, event(1))
    fail(database)
    seen = await rows.page(Filter(), 10)
    fail(database, code="OTHER")

    _, action_id, _ = await rows.start()
    assert await rows.act(Action.RETRY, seen, ANA, action_id) == []
    assert count(database, "failed_at is not null") == 1


async def test_the_record_and_the_change_are_one(rows: FailedRows, database: str) -> None:
    """Without its record, nothing is done."""
    store(database, event(1))
    fail(database)
    with psycopg.connect(database) as connection:
        connection.execute("alter table outbox_actions add constraint nobody check (acted_by <> 'ana')")

    with pytest.raises(pg.CheckViolation):
        await failed.act(rows, Action.RETRY, Filter(), ANA)

    assert count(database, "failed_at is not null") == 1


async def test_payloads_are_in_show_alone(rows: FailedRows, database: str) -> None:
    """With what operators did to the row."""
    store(database, event(1, data={"iban": "DE02"}))
    fail(database)
    (row,) = await rows.page(Filter(), 10)
    await failed.act(rows, Action.DISCARD, Filter(), ANA)

    known = await failed.shown(rows, row)

    assert "DE02" not in str(row)
    assert "DE02" in known["payload"]
    assert [(entry["action"], entry["acted_by"]) for entry in known["history"]] == [("discard", "ana")]


async def test_a_look_tells_the_states_apart(rows: FailedRows, database: str) -> None:
    """A row for later is not old; one that was discarded is not failed."""
    store(
        database,
        event(1),
        event(2, available_at="2020-01-01T00:00:00Z"),
        event(3, available_at="2090-01-01T00:00:00Z"),
        event(4, ordering_key="k"),
        *map(event, (5, 6, 7, 8)),
    )
    fail(database, "aggregate_id = '5'")
    fail(database, "aggregate_id = '6'", "non_retryable")
    fail(database, "aggregate_id = '7'", "discarded")
    with psycopg.connect(database) as connection:
        connection.execute("update outbox_events set published_at = now(), message_id = 'm' where aggregate_id = '8'")
        connection.execute("update outbox_events set attempt_count = 2 where aggregate_id = '3'")
        connection.execute("update outbox_events set created_at = now() - interval '1 hour' where aggregate_id = '2'")
        connection.execute("update outbox_events set created_at = now() - interval '9 days' where aggregate_id = '3'")

    queue = await look(rows._connection, "public")

    assert (queue.fresh, queue.delayed_due, queue.scheduled, queue.ordered, queue.keys.due) == (1, 1, 1, 1, 1)
    assert (queue.due, queue.pending, queue.retrying) == (3, 4, 1)
    assert (queue.max_attempts, queue.non_retryable, queue.failed, queue.failed_last_hour) == (1, 1, 2, 2)
    assert 3_600 <= queue.oldest_due_seconds < 4_000


async def test_an_empty_outbox_is_not_old(rows: FailedRows) -> None:
    """Nothing is due since nothing."""
    queue = await look(rows._connection, "public")
    assert not any((*queue[:-1], *queue.keys))


async def test_what_operators_did_is_not_dropped_by_a_step_back(rows: FailedRows, database: str) -> None:
    """The remedy that is named works."""
    store(database, event(1))
    fail(database)
    await failed.act(rows, Action.DISCARD, Filter(), ANA)

    with psycopg.connect(database) as connection:
        with pytest.raises(MigrationError, match=r"still holds 1 record\(s\) of what operators did") as refused:
            schema.migrate(connection, "public", 2)
        remedy = str(refused.value).partition("try again: ")[2].partition(". Nothing")[0]
        connection.rollback()
        connection.execute(remedy.encode())
        connection.commit()
        assert schema.migrate(connection, "public", 2)
        assert connection.execute("select count(*) from outbox_actions_kept").fetchone() == (1,)
