"""Locks of ordered emits, as docs/ordering.md tells them: who waits for whom, and what ends in a deadlock."""

import re
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg import errors as pg

from relay import emit
from tests.support.commands import ROOT
from tests.support.outbox import count, event
from tests.support.waiting import until

Connection = psycopg.Connection[Any]
ROUNDS = 25


@contextmanager
def writers(url: str) -> Iterator[tuple[Connection, Connection]]:
    """Two services; a deadlock between them is found soon."""
    with psycopg.connect(url) as first, psycopg.connect(url) as second:
        for connection in (first, second):
            connection.execute("set deadlock_timeout to '50ms'")
            connection.commit()
        yield first, second


def waits(url: str, waiting: Connection) -> bool:
    """Whether the session waits for an ordering bucket."""
    with psycopg.connect(url) as looking:
        query = "select 1 from pg_locks where pid = %s and locktype = 'advisory' and not granted"
        return looking.execute(query, (waiting.info.backend_pid,)).fetchone() is not None


def bucket_locks(connection: Connection) -> int:
    """How many advisory locks the session holds."""
    query = "select count(*) from pg_locks where pid = pg_backend_pid() and locktype = 'advisory' and granted"
    row = connection.execute(query).fetchone()
    return int(row[0]) if row else 0


def buckets(url: str, keys: Sequence[str]) -> dict[int, list[str]]:
    """The keys by the bucket that they share with others."""
    with psycopg.connect(url) as connection:
        found: dict[int, list[str]] = {}
        query = "select key, hashtext(key) & 1023 from unnest(%s::text[]) as key"
        for key, bucket in connection.execute(query, (list(keys),)):
            found.setdefault(bucket, []).append(key)
    return found


def in_two_emits(connection: Connection, keys: Sequence[str], number: int) -> None:
    """The transaction of a service that emits twice, as it would be run again."""
    for key in keys:
        emit(connection, event(number, ordering_key=key))
    connection.commit()


def test_two_emits_each_in_crossed_order_end_one_of_two_transactions(database: str) -> None:
    """With SQLSTATE 40P01; the other one commits, and the one that is run again does too. The locks are named."""
    found = buckets(database, [f"key-{n}" for n in range(20)])
    (one_bucket, (one, *_)), (other_bucket, (other, *_)) = list(found.items())[:2]
    details: list[str] = []

    def second_emit(connection: Connection, key: str, number: int) -> str:
        try:
            emit(connection, event(number, ordering_key=key))
            connection.commit()
        except pg.DeadlockDetected as deadlock:
            connection.rollback()
            details.append(str(deadlock.diag.message_detail))
            return str(deadlock.sqlstate)
        return "committed"

    with writers(database) as (first, second), ThreadPoolExecutor(2) as threads:
        emit(first, event(1, ordering_key=one))
        emit(second, event(2, ordering_key=other))
        crossing = threads.submit(second_emit, first, other, 1)
        until(lambda: waits(database, first), "the first transaction waits for the second")
        ends = [threads.submit(second_emit, second, one, 2).result(), crossing.result()]

        assert sorted(ends) == ["40P01", "committed"]
        named = re.findall(r"advisory lock \[\d+,1869968482,(\d+),2\]", details[0])
        assert sorted(map(int, named)) == sorted([one_bucket, other_bucket])
        assert count(database) == 2
        if ends[0] == "40P01":
            in_two_emits(second, [other, one], 2)
        else:
            in_two_emits(first, [one, other], 1)
    assert count(database) == 4
    assert count(database, "aggregate_id = '1'") == count(database, "aggregate_id = '2'") == 2


def test_one_bulk_emit_each_in_crossed_order_never_does(database: str) -> None:
    """Its buckets are taken in one order, whatever the order of its events."""
    keys = [f"key-{n}" for n in range(200)]
    together = threading.Barrier(2)

    def emit_again_and_again(connection: Connection, order: Sequence[str]) -> None:
        for number in range(ROUNDS):
            together.wait(30)
            emit(connection, [event(number, ordering_key=key) for key in order])
            connection.commit()

    with writers(database) as (first, second), ThreadPoolExecutor(2) as threads:
        both = [
            threads.submit(emit_again_and_again, connection, order)
            for connection, order in ((first, keys), (second, keys[::-1]))
        ]
        for each in both:
            each.result()
    assert count(database) == 2 * ROUNDS * len(keys)


@pytest.mark.parametrize("events", [1, 3])
def test_without_the_order_lock_no_lock_is_taken(database: str, events: int) -> None:
    """For a caller that holds one of its own, such as that of the aggregate's row."""
    with psycopg.connect(database) as connection:
        several = [event(n, ordering_key=f"key-{n}") for n in range(events)]
        emit(connection, several, order_lock=False)
        assert bucket_locks(connection) == 0
        emit(connection, several)
        assert bucket_locks(connection) == events
        connection.commit()
        assert bucket_locks(connection) == 0


def test_different_keys_of_one_bucket_wait_for_each_other(database: str) -> None:
    """There are 1,024 buckets and any number of keys: that costs time, and never the order."""
    shared = buckets(database, [f"key-{n}" for n in range(200)])
    one, other, *_ = next(keys for keys in shared.values() if len(keys) > 1)

    with writers(database) as (first, second), ThreadPoolExecutor(1) as thread:
        emit(first, event(1, ordering_key=one))
        waiting = thread.submit(emit, second, event(2, ordering_key=other))
        until(lambda: waits(database, second), "the other key waits")
        first.commit()
        assert waiting.result().inserted
        second.commit()
    assert count(database) == 2


def test_the_page_on_order_emits_as_it_says(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its snippet, run the way it stands there."""
    monkeypatch.setenv("DATABASE_URL", database)
    page = (ROOT / "docs" / "ordering.md").read_text()
    snippet, *_ = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    exec(snippet, {})  # noqa: S102 -- this is what the test is for
    with psycopg.connect(database) as connection:
        stored = connection.execute("select event_type, ordering_key from outbox_events order by id").fetchall()
    assert stored == [("order.paid", "order-42"), ("order.closed", "order-42")]
