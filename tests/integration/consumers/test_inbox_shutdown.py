"""The end of a process that has deliveries of an inbox: what runs, what waits, and in which order things end."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

from consumers import Consumer, Received
from consumers.events import ConsumerStopped, Fate
from consumers.testing import in_memory
from tests.support.inbox import history, leases, row, rows
from tests.support.inbox_at_work import comes_about, happens, running
from tests.support.looking import stop_looking


async def test_a_handler_that_is_late_is_cancelled_and_its_delivery_free_at_once(inbox_database: str) -> None:
    """Its history says why, its attempt is given back, and the next process has it without waiting for a lease."""
    entered: list[float] = []

    async def handler(event: Received[Any]) -> None:
        entered.append(deliveries.clock.monotonic())
        if len(entered) == 1:
            await asyncio.Event().wait()

    async with running(inbox_database, handler) as deliveries:
        event = deliveries.publish("order.paid")
        await comes_about(lambda: len(entered) == 1, "it is handled")
        assert await deliveries.stop() == ()
        stopped = deliveries.clock.monotonic()
        found = row(inbox_database, event)
        assert (found["state"], found["attempt_count"], leases(inbox_database)) == ("pending", 0, [])
        assert history(inbox_database, event) == ["created", "processing", "aborted:shutdown"]
        await deliveries.restart()
        settled = await deliveries.wait_for(event)
        assert settled.fate is Fate.RELEASED
        again = await deliveries.wait_for(event)

    assert stopped - entered[0] >= 25
    assert (again.fate, again.attempt, entered[1] - stopped) == (Fate.DONE, 1, 0)
    assert history(inbox_database, event)[3:] == ["processing", "done"]


async def test_a_threads_lease_is_left_to_end(inbox_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody can stop it: nobody else may have the delivery meanwhile. History says so; the attempt is given back."""
    # The database writes its note in real time, while the clock of the test hurries on.
    monkeypatch.setattr("consumers.runtime._NOTE_SECONDS", 600.0)
    inside, release = threading.Event(), threading.Event()
    calls = 0

    def handler(event: Received[Any]) -> None:
        nonlocal calls
        calls += 1
        inside.set()
        if calls == 1:
            release.wait(30)

    try:
        async with running(inbox_database, handler) as deliveries:
            event = deliveries.publish("order.paid")
            await comes_about(inside.is_set, "it is handled")
            (abandoned,) = await deliveries.stop()
            found, (lease,) = row(inbox_database, event), leases(inbox_database)
            await deliveries.restart()
            other = deliveries.publish("order.paid")
            assert (await deliveries.wait_for(other)).fate is Fate.DONE
            before = calls
            await deliveries.advance(30)
            await happens(deliveries, lambda: Fate.DONE in deliveries.fates(event), "its lease has ended")
    finally:
        release.set()

    assert str(event) in abandoned
    assert (found["state"], lease["token"], before) == ("processing", found["token"], 2)
    assert row(inbox_database, event)["attempt_count"] == 1
    assert history(inbox_database, event) == [
        "created",
        "processing",
        "aborted:shutdown",
        "requeued:stale",
        "processing",
        "done",
    ]


async def test_a_database_that_does_not_answer_does_not_hold_up_the_end(inbox_database: str) -> None:
    """Neither for what is to be released nor for a word about what is left: both have two seconds."""
    inside, release = threading.Event(), threading.Event()

    def stays(event: Received[Any]) -> None:
        inside.set()
        release.wait(30)

    async def is_late(event: Received[Any]) -> None:
        await asyncio.Event().wait()

    consumer = Consumer("billing", dedup="inbox", timeout=None)
    consumer.on("order.paid")(stays)
    consumer.on("order.sent")(is_late)
    try:
        async with in_memory(consumer, database=inbox_database) as deliveries:
            for event_type in ("order.paid", "order.sent"):
                deliveries.publish(event_type)
            await comes_about(lambda: inside.is_set() and len(leases(inbox_database)) == 2, "both are handled")
            with psycopg.connect(inbox_database) as connection:
                connection.execute("lock table inbox_history in access exclusive mode")
                await deliveries.stop()
            (stopped,) = [each for each in deliveries.events if isinstance(each, ConsumerStopped)]
    finally:
        release.set()

    assert stopped.seconds == pytest.approx(25 + 2, abs=0.1)
    assert len(stopped.abandoned) == 1


async def test_the_database_is_let_go_of_last(inbox_database: str) -> None:
    """Nothing new, what runs ends and is written, the consumer's own resources are closed, then the connections."""
    order: list[str] = []
    inside, release = asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        yield
        order.append(f"closed with {_sessions(inbox_database)} sessions")

    async def handler(event: Received[Any]) -> None:
        inside.set()
        await release.wait()
        order.append("handled")

    async with running(inbox_database, handler, concurrency=1, lifespan=lifespan) as deliveries:
        first = deliveries.publish("order.paid")
        await comes_about(inside.is_set, "it is handled")
        waiting = deliveries.publish("order.paid")
        await comes_about(lambda: len(rows(inbox_database)) == 2, "the second one is stored")
        runtime = deliveries.process.runtime
        stopping = asyncio.create_task(deliveries.stop())
        await comes_about(lambda: not runtime.receiving, "it receives no more")
        release.set()
        assert await stopping == ()
        (stopped,) = [each for each in deliveries.events if isinstance(each, ConsumerStopped)]

    assert order[0] == "handled"
    assert order[1] != "closed with 0 sessions"
    assert stopped.abandoned == ()
    stop_looking()
    # The server takes a moment to end what it was told to end.
    await comes_about(lambda: _sessions(inbox_database) == 0, "no session is left")
    assert (row(inbox_database, first)["state"], row(inbox_database, waiting)["state"]) == ("done", "pending")
    assert history(inbox_database, waiting) == ["created"]


def _sessions(database: str) -> int:
    with psycopg.connect(database) as connection:
        ((found,),) = connection.execute(
            "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
        ).fetchall()
    return int(found)
