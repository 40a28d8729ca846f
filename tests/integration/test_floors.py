"""No row is stranded below a floor: not one that another relay held, nor one that was committed late."""

import asyncio
import random
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from relay import emit
from relay.kernel.runner import Budget
from relay.outbox import floors
from relay.outbox.actions import Operator
from relay.outbox.failed import Action, FailedRows, Named
from relay.outbox.outbox import Outbox
from relay.outbox.statements import statement
from relay.postgres.connect import connect_async
from relay.routes import Routes
from tests.support.bench import TOPIC, Bench
from tests.support.outbox import PENDING, count, event
from tests.support.roles_of_tests import as_relay
from tests.support.waiting import until_async

EMITTERS = 6
TRANSACTIONS = 60


@contextmanager
def emitting(bench: Bench, *numbers: int, **fields: Any) -> Iterator[psycopg.Connection[Any]]:
    """A transaction that has emitted and is still open."""
    with psycopg.connect(bench.url) as connection:
        emit(connection, [event(number, **fields) for number in numbers])
        yield connection


async def settle_down(bench: Bench) -> None:
    """Passes with nothing to do until the safe floors have come as far as they can."""
    for _ in range(3):
        bench.later += 30 * floors.LEAST_SECONDS  # also where the look before has taken long
        await bench.run_once()


def look(bench: Bench, seen: int, ordered_safe: int = 0) -> tuple[int, int]:
    """The safe floors by a look for which no transaction is too old."""
    values = {"seen": seen, "xid": "3", "fresh_safe": 0, "ordered_safe": ordered_safe}
    with psycopg.connect(bench.url) as connection:
        row = connection.execute(statement("floors"), values).fetchone()
    assert row
    return row[1], row[2]


@pytest.mark.parametrize(("rows", "size_bytes"), [(7, 10**6), (1_000, 5_000)], ids=["rows", "bytes"])
async def test_claims_follow_each_other_without_a_gap(bench: Bench, rows: int, size_bytes: int) -> None:
    """The floor is the last row that was claimed, also where the limit in bytes cut off those that were locked."""
    bench.emit(*range(40))
    claimed: list[int] = []
    while len(claimed) < 40:
        async with bench.outbox.batch() as batch:
            assert bench.outbox.floors.fresh == len(claimed)
            found = (await batch.claim(rows, size_bytes)).rows
            async with batch.settling():
                batch.mark({TOPIC: [(row, "m") for row in found]}, [])
        claimed += [row.id for row in found]
        assert claimed == list(range(1, len(claimed) + 1))
    await bench.outbox.close()


async def test_rows_of_a_relay_that_dies_in_mid_batch_come_out_within_two_seconds(bench: Bench) -> None:
    """Another has drained everything else meanwhile, and its floor is beyond them."""
    bench.emit(*range(500))

    async def dying() -> None:
        async with bench.open_outbox().batch() as batch:
            assert len((await batch.claim(100, 1_000_000)).rows) == 100
            assert (await bench.run_once()).updated == 400
            raise KeyError

    with pytest.raises(KeyError):
        await dying()
    assert bench.outbox.floors.fresh == 500
    began = time.monotonic()

    async def out() -> bool:
        await bench.run_once()
        return count(bench.url, PENDING) == 0

    await until_async(out, "all rows are out", 10)
    assert time.monotonic() - began < 2 + floors.SHARE * bench.outbox.floors._sweep_seconds


async def test_in_a_drain_that_never_ends_they_come_out_with_the_next_sweep(bench: Bench) -> None:
    """Full batches follow each other; a second later one of them begins with what had been passed over."""
    bench.emit(*range(1_000))
    dying = bench.open_outbox()
    async with dying.batch() as batch:
        held = {row.event_id for row in (await batch.claim(10, 1_000_000)).rows}
        await bench.run_once(seconds=0)
    await bench.run_once(seconds=0)
    assert held.isdisjoint(bench.broker.event_ids)
    bench.later += floors.LEAST_SECONDS + floors.SHARE * bench.outbox.floors._sweep_seconds
    await bench.run_once(seconds=0)
    assert held <= set(bench.broker.event_ids)
    assert count(bench.url, PENDING) > 0
    await dying.close()


async def test_what_is_committed_after_later_ids_were_published_comes_out(bench: Bench) -> None:
    """However far the fast floor has come; the safe one waits for it, and follows when it is out."""
    with emitting(bench, 1) as late:
        bench.emit(*range(2, 400))
        assert (await bench.run_once()).updated == 398
        await settle_down(bench)
        assert (bench.outbox.floors.fresh, bench.outbox.floors.fresh_safe) == (399, 0)
        late.commit()
    await settle_down(bench)
    assert count(bench.url, PENDING) == 0
    assert (bench.outbox.floors.fresh_safe, bench.outbox.floors.ordered_safe) == (399, 399)


async def test_a_greater_xid_with_a_lower_id_holds_the_safe_floor(bench: Bench) -> None:
    """Of three that are at work the first to end has the lowest xid and the greatest id; the snapshot's end is its."""
    with ExitStack() as stack:
        first, second, third = [stack.enter_context(psycopg.connect(bench.url)) for _ in range(3)]
        for connection in (first, second, third):
            connection.execute("select pg_current_xact_id()")
        emit(third, [event(1)])
        emit(second, [event(2)])
        # A claim that finds nothing takes no xid of its own.
        emit(first, [event(3, available_at=datetime.now(UTC) + timedelta(days=1))])
        first.commit()
        await settle_down(bench)
        second.commit()
        await settle_down(bench)
        assert (bench.outbox.floors.fresh, bench.outbox.floors.fresh_safe) == (3, 0)
        third.commit()
    await settle_down(bench)
    assert bench.outbox.floors.fresh_safe == 3
    assert len(bench.broker.event_ids) == 2


async def test_an_emit_that_has_no_id_yet_does_not_hold_the_safe_floor(bench: Bench) -> None:
    """It will have a later one; those who read and those who write elsewhere alike, once they began after the note."""
    bench.emit(*range(10))
    await settle_down(bench)
    with psycopg.connect(bench.url) as writing:
        writing.execute("select pg_current_xact_id()")
        assert bench.outbox.floors.fresh_safe == 10
        emit(writing, [event(10)])
        await settle_down(bench)
        assert (bench.outbox.floors.fresh, bench.outbox.floors.fresh_safe) == (10, 10)
    await settle_down(bench)
    assert bench.outbox.floors.fresh_safe == 11


async def test_a_look_sees_rows_that_others_have_locked(bench: Bench) -> None:
    """They may be free again at any moment: the safe floor stays below them."""
    bench.emit(*range(300))
    other = bench.open_outbox()
    async with other.batch() as batch:
        held = (await batch.claim(1, 1_000_000)).rows
        assert (await bench.run_once()).updated == 299
        assert bench.outbox.floors.fresh == 300
        assert look(bench, seen=300) == (held[0].id - 1, 300)
    await other.close()


async def test_an_error_starts_the_floors_anew(bench: Bench) -> None:
    """What the transaction had claimed is pending again, below the floor that it had moved."""
    bench.emit(*range(50))

    def terminate() -> None:
        bench.query("select pg_terminate_backend(pid) from pg_locks where relation = 'outbox_events'::regclass")

    bench.broker.meanwhile = terminate
    with pytest.raises(psycopg.OperationalError):
        await bench.run_once()
    assert bench.outbox.floors.fresh == 0
    bench.broker.meanwhile = lambda: None
    assert (await bench.run_once()).updated == 50


async def test_ids_that_begin_anew_are_found(bench: Bench) -> None:
    """Somebody emptied the table; the floors would be far beyond its rows."""
    bench.emit(*range(50))
    await settle_down(bench)
    with psycopg.connect(bench.url) as connection:
        connection.execute("truncate outbox_events restart identity")
    await settle_down(bench)
    bench.emit(1)
    assert (await bench.run_once()).updated == 1


async def test_a_row_that_was_inserted_by_hand_comes_out_with_the_next_start_from_nothing(bench: Bench) -> None:
    """Its id was drawn before its transaction had an xid: no floor can know of it."""
    bench.emit(1, 2)
    await settle_down(bench)
    assert bench.outbox.floors.fresh_safe == 2
    bench.query("update outbox_events set published_at = null, message_id = null where id = 1 returning 1")
    assert (await bench.run_once()).updated == 0
    bench.later += floors.RESTART_SECONDS
    assert (await bench.run_once()).updated == 1


async def test_an_ordered_row_that_is_retried_comes_out(bench: Bench) -> None:
    """It did not block its key, so the floor has passed it; the relay sees that an operator acted."""
    bench.emit(*range(3), ordering_key="k")
    bench.query("update outbox_events set failed_at = now(), failure_reason = 'max_attempts' where id = 1 returning 1")
    await settle_down(bench)
    assert bench.outbox.floors.ordered_safe == 3
    connection = await connect_async(as_relay(bench.url))
    failed = FailedRows(connection, "public", Routes(TOPIC).as_parameters)
    _, action_id, _ = await failed.start()
    rows = await failed.named(Named(ids=[1], event_ids=[]))
    assert await failed.act(Action.RETRY, rows, Operator("test", None), action_id)
    await connection.close()

    async def out() -> bool:
        await bench.run_once()
        return count(bench.url, PENDING) == 0

    await until_async(out, "the row is out")


@pytest.mark.parametrize(
    ("state", "safe"),
    [
        ("failed_at = now(), failure_reason = 'max_attempts', blocks_key = true", 4),
        ("failed_at = now(), failure_reason = 'max_attempts'", 10),
        ("available_at = now() + interval '1 day'", 4),
        ("published_at = now(), message_id = 'm'", 10),
    ],
)
async def test_a_blocked_key_holds_the_floor_of_ordered_rows(bench: Bench, state: str, safe: int) -> None:
    """A failed row at which its key stops, or one that waits for its next attempt; not one that is skipped."""
    bench.emit(*range(10), ordering_key="k")
    bench.query("update outbox_events set published_at = now(), message_id = 'm' where id <> 5 returning 1")
    bench.query(f"update outbox_events set {state} where id = 5 returning 1")  # noqa: S608 -- the test's own words
    assert look(bench, seen=10) == (10, safe)
    # So far away that the rows between are not looked at one by one.
    assert look(bench, seen=10, ordered_safe=-100_010) == (10, safe)


async def test_nothing_is_stranded_by_emitters_and_relays_of_all_kinds(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Transactions that commit late or never, and out of order; two relays, requests that fail, looks all the time."""
    monkeypatch.setattr(floors, "LEAST_SECONDS", 0.0)
    monkeypatch.setattr(floors, "SHARE", 0.5)
    emitted: list[str] = []

    def emitter(seed: int) -> None:
        chance = random.Random(seed)  # noqa: S311 -- the same each time
        with psycopg.connect(bench.url) as connection:
            for number in range(TRANSACTIONS):
                ids = [
                    str(one.event_id) for one in emit(connection, [event(number) for _ in range(chance.randint(1, 5))])
                ]
                threading.Event().wait(chance.choice([0.0, 0.0, 0.001, 0.01, 0.05]))
                if chance.random() < 0.1:
                    connection.rollback()
                else:
                    connection.commit()
                    emitted.extend(ids)

    chance = random.Random(0)  # noqa: S311 -- the same each time
    bench.broker.refuse = lambda _: ConnectionError("now and then") if chance.random() < 0.02 else None
    outboxes = [Outbox(lambda: connect_async(as_relay(bench.url)), "public", 20_000) for _ in range(2)]
    threads = [threading.Thread(target=emitter, args=(seed,)) for seed in range(EMITTERS)]
    ended = asyncio.Event()

    async def relay(outbox: Outbox) -> None:
        publisher = bench.publisher_on(outbox, batch_size=chance.randint(5, 20))
        while not ended.is_set():
            await publisher.run_once(Budget(time.monotonic() + 0.05, time.monotonic, ended))
            await asyncio.sleep(0)
        await publisher.close()

    for thread in threads:
        thread.start()
    async with asyncio.TaskGroup() as group:
        for outbox in outboxes:
            group.create_task(relay(outbox))
        for thread in threads:
            await asyncio.to_thread(thread.join)

        async def out() -> bool:
            return await asyncio.to_thread(count, bench.url, PENDING) == 0

        try:
            await until_async(out, "everything is out")
        finally:
            ended.set()
    assert sorted(emitted) == sorted(set(bench.broker.event_ids))
