"""What is said of rows with an ordering key: which are due, which wait, behind what, and for how long."""

from collections.abc import AsyncIterator, Iterable
from typing import Any

import psycopg
import pytest

from relay import emit
from relay.outbox import queue as queues
from relay.outbox.actions import Operator
from relay.outbox.failed import Action, FailedRows, Filter
from relay.outbox.queue import BlockedKey, Queue, blocked_keys, look
from relay.outbox.statements import statement
from relay.postgres.connect import connect_async
from tests.support.outbox import event
from tests.support.roles_of_tests import as_relay, as_viewer

ME = Operator("me", "a test")


def store(url: str, keys: Iterable[str]) -> None:
    """Emit an event for each of the keys; their numbers are their places."""
    with psycopg.connect(url) as connection:
        emit(connection, [event(number, ordering_key=key) for number, key in enumerate(keys)])


def change(url: str, what: str, *numbers: int) -> None:
    """Have something happen to the events of these numbers."""
    with psycopg.connect(url) as connection:
        done = connection.execute(
            f"update outbox_events set {what} where aggregate_id = any(%s)".encode(),  # noqa: S608 -- a test's own words
            ([str(number) for number in numbers],),
        )
        assert done.rowcount == len(numbers)


BLOCKED = "failed_at = now(), failure_reason = 'max_attempts', last_error_code = 'INTERNAL', blocks_key = true"
SKIPPED = "failed_at = now(), failure_reason = 'max_attempts'"
PUT_OFF = "attempt_count = 1, available_at = now() + interval '1 hour'"
OLD = "created_at = now() - interval '1 hour'"


@pytest.fixture
async def connection(database: str) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    """A connection to an empty outbox."""
    async with await connect_async(as_viewer(database)) as connection:
        yield connection


@pytest.fixture
async def operator(database: str) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    """A connection of somebody who acts."""
    async with await connect_async(as_relay(database)) as connection:
        yield connection


def counts(queue: Queue) -> tuple[int, int, int, int, int]:
    """Ordered rows: all, due, put off, blocked keys, and what is behind them."""
    keys = queue.keys
    return queue.ordered, keys.due, keys.later, keys.blocked, keys.behind


async def held_up(rows: FailedRows, row_id: int) -> tuple[Any, Any, Any]:
    """What holds up a row, as it is shown."""
    known, _ = await rows.shown(row_id)
    return known["held_up_by"], known["held_up_why"], known["held_up_until"]


async def test_rows_whose_key_is_not_held_up_are_due_and_late(
    connection: psycopg.AsyncConnection[Any], database: str
) -> None:
    """The whole key, for the relay takes its rows one after the other."""
    store(database, ["a", "a", "b"])
    change(database, OLD, 1)
    assert counts(await look(connection, "public")) == (3, 3, 0, 0, 0)
    assert (await look(connection, "public")).oldest_due_seconds < 60

    change(database, OLD, 2)
    queue = await look(connection, "public")
    assert (queue.due, queue.pending) == (3, 3)
    assert 3_600 <= queue.oldest_due_seconds < 3_700


async def test_a_failed_row_that_blocks_its_key_makes_its_later_rows_neither_due_nor_late(
    connection: psycopg.AsyncConnection[Any], database: str
) -> None:
    """No relay could mend it: they are counted for the operator, who can."""
    store(database, ["a", "a", "a", "b", "b"])
    change(database, OLD, 0, 1, 2)
    change(database, BLOCKED, 1)

    queue = await look(connection, "public")
    assert counts(queue) == (4, 3, 0, 1, 1)
    assert (queue.due, queue.failed, queue.blocking) == (3, 1, 1)
    change(database, "published_at = now(), message_id = 'm'", 0)
    queue = await look(connection, "public")
    assert counts(queue) == (3, 2, 0, 1, 1)
    assert queue.oldest_due_seconds < 60
    assert not any((queue.keys.is_least, queue.keys.more_keys))


async def test_a_failed_row_that_was_skipped_holds_nothing_up(
    connection: psycopg.AsyncConnection[Any], database: str
) -> None:
    """Its key goes on."""
    store(database, ["a", "a"])
    change(database, SKIPPED, 0)

    assert counts(await look(connection, "public")) == (1, 1, 0, 0, 0)
    assert await blocked_keys(connection, "public", 10) == []


async def test_a_row_that_waits_for_its_next_attempt_holds_its_key_for_so_long(
    connection: psycopg.AsyncConnection[Any], database: str
) -> None:
    """It and what is behind it are for later; a key that was put off by hand is no other."""
    store(database, ["a", "a", "a", "b", "c", "c"])
    change(database, PUT_OFF, 1)
    change(database, "available_at = now() + interval '1 hour'", 4)
    change(database, OLD, 1, 2, 4, 5)

    queue = await look(connection, "public")
    assert counts(queue) == (6, 2, 4, 0, 0)
    assert queue.oldest_due_seconds < 60
    change(database, "available_at = now() - interval '2 minutes'", 1)
    queue = await look(connection, "public")
    assert counts(queue) == (6, 4, 2, 0, 0)


async def test_what_waits_behind_two_failed_rows_of_a_key_is_counted_once(
    connection: psycopg.AsyncConnection[Any], database: str
) -> None:
    """As after the retry of a row that had been skipped."""
    store(database, ["a", "a", "a", "a", "b"])
    change(database, BLOCKED, 0, 2)
    change(database, PUT_OFF, 3)

    assert counts(await look(connection, "public")) == (3, 1, 0, 1, 2)
    (key,) = await blocked_keys(connection, "public", 10)
    assert (key.ordering_key, key.behind, key.behind_is_least) == ("a", 2, False)


async def test_operators_release_a_key_in_order_or_without_its_row(
    operator: psycopg.AsyncConnection[Any], database: str
) -> None:
    """A retried head is due before what waits behind it; a discarded one is passed over."""
    store(database, ["a", "a", "b", "b"])
    change(database, BLOCKED, 0, 2)
    rows = FailedRows(operator, "public", {"patterns": [], "pattern_topics": [], "default_topic": "t"})
    _, action_id, _ = await rows.start()
    first, second = await rows.page(Filter(), 10)
    assert [(row.ordering_key, row.blocks_key) for row in (first, second)] == [("a", True), ("b", True)]
    assert (await rows.shown(first.id))[0]["rows_behind"] == 1
    assert await held_up(rows, first.id + 1) == (first.id, "blocked", None)

    assert await rows.act(Action.RETRY, [first], ME, action_id)
    assert counts(await look(operator, "public")) == (3, 2, 0, 1, 1)
    assert await rows.act(Action.DISCARD, [second], ME, action_id)
    assert counts(await look(operator, "public")) == (3, 3, 0, 0, 0)
    assert (await rows.shown(second.id))[0]["rows_behind"] is None
    assert await held_up(rows, first.id + 1) == await held_up(rows, second.id + 1) == (None, None, None)


async def test_a_row_behind_one_that_is_put_off_says_until_when(
    connection: psycopg.AsyncConnection[Any], database: str
) -> None:
    """The first of its key that cannot go out, and no row of another key."""
    store(database, ["a", "b", "b", "b"])
    change(database, "attempt_count = 1, available_at = '2999-12-31 12:00+00'", 1)
    rows = FailedRows(connection, "public", {"patterns": [], "pattern_topics": [], "default_topic": "t"})
    with psycopg.connect(database) as other:
        ids = [row[0] for row in other.execute("select id from outbox_events order by id").fetchall()]
    assert await held_up(rows, ids[1]) == (None, None, None)
    by, why, until = await held_up(rows, ids[3])
    assert (by, why) == (ids[1], "put off")
    assert str(until).startswith("2999-12-31")


async def test_the_keys_with_most_rows_waiting_are_told_first(
    connection: psycopg.AsyncConnection[Any], database: str
) -> None:
    """Each with the row that an operator has to decide about."""
    store(database, ["few", "most", "most", "most", "few", "none", "free"])
    change(database, BLOCKED, 0, 1, 5)

    most, few = await blocked_keys(connection, "public", 2)
    assert isinstance(most, BlockedKey)
    assert (most.ordering_key, most.behind, most.code, most.failure_reason) == ("most", 2, "INTERNAL", "max_attempts")
    assert (few.ordering_key, few.behind) == ("few", 1)
    async with await connect_async(as_viewer(database)) as other:
        cursor = await other.execute("select id, event_id::text from outbox_events where aggregate_id = '1'")
        assert await cursor.fetchone() == (most.id, most.event_id)


@pytest.mark.parametrize(("most", "keys"), [(2, 100), (4, 100), (100, 2), (100, 3), (100, 100)])
async def test_a_figure_is_exact_or_says_that_it_is_least(
    connection: psycopg.AsyncConnection[Any], database: str, monkeypatch: pytest.MonkeyPatch, most: int, keys: int
) -> None:
    """Whichever limit ends the counting, none is too high."""
    monkeypatch.setattr(queues, "KEY_LIMIT", keys)
    store(database, [*(["a"] * 9), *(["b"] * 3), "c", "c", "d", "d", "d", "e"])
    change(database, BLOCKED, 0, 9)
    change(database, PUT_OFF, 15)
    truth = (16, 4, 2, 2, 10)
    change(database, OLD, 12)

    queue = await look(connection, "public", most)

    assert all(said <= true for said, true in zip(counts(queue), truth, strict=True))
    assert all(
        said == true or said >= most or queue.keys.is_least for said, true in zip(counts(queue), truth, strict=True)
    )
    assert queue.oldest_due_seconds > 3_600 or queue.keys.more_keys
    if (most, keys) == (100, 100):
        assert counts(queue) == truth
        assert not any((queue.keys.is_least, queue.keys.more_keys))


async def test_a_blocked_key_is_seen_behind_more_failed_rows_than_are_looked_at(
    connection: psycopg.AsyncConnection[Any], database: str
) -> None:
    """By its first row. What is due is known of first rows alone then, for any other key may be held up further on."""
    store(database, [*(["skipped"] * 5), "a", "a", "a", "b", "b", "b"])
    change(database, SKIPPED, 0, 1, 2, 3, 4)
    change(database, BLOCKED, 5, 9)

    keys = (await look(connection, "public", 5)).keys
    assert (keys.due, keys.later, keys.behind, keys.blocked, keys.is_least) == (1, 0, 2, 1, True)
    keys = (await look(connection, "public", 8)).keys
    assert (keys.due, keys.later, keys.behind, keys.blocked, keys.is_least) == (1, 0, 3, 2, False)


async def test_a_long_blocked_key_hides_no_other(connection: psycopg.AsyncConnection[Any], database: str) -> None:
    """Neither what is due in others, nor how many rows wait behind other failed rows."""
    store(database, [*(["a"] * 50), "b", "b", "c", "c", "c"])
    change(database, BLOCKED, 0, 50)

    queue = await look(connection, "public", 10)
    assert (queue.keys.due, queue.keys.behind, queue.keys.blocked, queue.keys.is_least) == (3, 10, 2, False)
    cursor = await connection.execute(statement("blocked_keys"), {"most": 10, "keys": 10, "shown": 10})
    assert [(row[0], *row[-2:]) for row in await cursor.fetchall()] == [("a", 5, True), ("b", 1, False)]
