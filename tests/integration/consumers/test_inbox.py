"""A consumer that keeps its deliveries in Postgres: what comes is stored, what is stored is handled once in effect."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

from consumers import Consumer, Context, Dead, Defer, Done, Received, Retry, Skip
from consumers.events import Fate, Heartbeat, LeaseRecovered, OutcomeIgnored, Stored
from consumers.testing import Deliveries, in_memory
from consumers.testing.database import Place
from idempotency import LeaseLostError
from tests.support.inbox import history, leases, row, rows
from tests.support.waiting import until_async


def async_of(condition: Callable[[], bool]) -> Callable[[], Awaitable[bool]]:
    """The same condition, awaited."""

    async def asked() -> bool:
        return condition()

    return asked


def _beats(deliveries: Deliveries) -> int:
    return sum(isinstance(each, Heartbeat) for each in deliveries.events)


def consumer_of(handler: Any, **options: Any) -> Consumer:
    """A consumer of orders with an inbox."""
    consumer = Consumer("billing", dedup="inbox", **options)
    consumer.on("order.*")(handler)
    return consumer


@asynccontextmanager
async def running(database: str, handler: Any, **options: Any) -> AsyncIterator[Deliveries]:
    """That consumer at work."""
    async with in_memory(consumer_of(handler, **options), database=database) as deliveries:
        yield deliveries


async def test_what_comes_is_stored_handled_and_done(inbox_database: str) -> None:
    """With its history, without a lease, and acknowledged at the source as soon as it is stored."""
    seen: list[Received[Any]] = []

    async def handler(event: Received[Any]) -> str:
        seen.append(event)
        return "booked"

    async with running(inbox_database, handler) as deliveries:
        event = deliveries.publish("order.paid", {"cents": 7}, ordering_key="o-1", attributes={"note": "ä"})
        assert (await deliveries.wait_for(event)).fate is Fate.DONE

    assert [(each.event_id, each.data, each.ordering_key, each.attributes["note"]) for each in seen] == [
        (event, {"cents": 7}, "o-1", "ä")
    ]
    found = row(inbox_database, event)
    assert (found["state"], found["outcome"], found["result"], found["attempt_count"]) == ("done", "ok", "booked", 1)
    assert history(inbox_database, event) == ["created", "processing", "done"]
    assert leases(inbox_database) == []


async def test_a_duplicate_is_acknowledged_and_not_stored_again(inbox_database: str) -> None:
    """However often a broker delivers, there is one row."""
    calls = 0

    async def handler(event: Received[Any]) -> None:
        nonlocal calls
        calls += 1

    async with running(inbox_database, handler) as deliveries:
        event = deliveries.publish("order.paid")
        await deliveries.wait_for(event)
        deliveries.repeat(event)
        assert (await deliveries.wait_for(event)).fate is Fate.DUPLICATE
        assert deliveries.pending == 0

    assert calls == 1
    assert len(rows(inbox_database)) == 1


async def test_a_batch_is_stored_with_one_statement(inbox_database: str) -> None:
    """A thousand events take two, of 500 each, whatever order they come in."""

    async def handler(event: Received[Any]) -> None: ...

    async with running(inbox_database, handler, concurrency=100) as deliveries:
        events = [deliveries.publish("order.paid", {"n": n}) for n in range(1000)]
        for event in events:
            assert (await deliveries.wait_for(event)).fate is Fate.DONE
        stored = [each.stored for each in deliveries.events if isinstance(each, Stored)]

    assert sum(stored) == 1000
    assert len(stored) <= 3
    assert {each["state"] for each in rows(inbox_database)} == {"done"}


async def test_a_failure_is_tried_again_when_it_is_due(inbox_database: str) -> None:
    """After 5 s, then 10 s; the third one is the last: failed, with what it said."""

    async def handler(event: Received[Any]) -> None:
        raise OSError("the bank is away")

    async with running(inbox_database, handler) as deliveries:
        event = deliveries.publish("order.paid")
        first = await deliveries.wait_for(event)
        assert (first.fate, first.again_in) == (Fate.RETRIED, 5.0)
        assert row(inbox_database, event)["state"] == "pending"
        await deliveries.advance(5.1)
        second = await deliveries.wait_for(event)
        assert (second.fate, second.again_in) == (Fate.RETRIED, 10.0)
        await deliveries.advance(10.1)
        assert (await deliveries.wait_for(event)).fate is Fate.DEAD
        assert deliveries.dead_letters == []

    found = row(inbox_database, event)
    assert (found["state"], found["outcome"], found["attempt_count"], found["error_code"]) == (
        "failed",
        "dead",
        3,
        "OSError",
    )
    assert "the bank is away" in found["error"]
    assert history(inbox_database, event) == [
        "created",
        *["processing", "retry"] * 2,
        "processing",
        "failed",
    ]


@pytest.mark.parametrize(
    ("answer", "fate", "state", "outcome"),
    [
        (Skip("paid before"), Fate.SKIPPED, "done", "skipped"),
        (Dead("closed", "CLOSED"), Fate.DEAD, "failed", "dead"),
        (Done({"total": 3}), Fate.DONE, "done", "ok"),
        (Retry("busy", "429", delay="30s"), Fate.RETRIED, "pending", None),
        (Defer("30s"), Fate.DEFERRED, "pending", None),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str | Fate) else "",
)
async def test_what_a_handler_answers_is_what_its_row_says(
    inbox_database: str, answer: Any, fate: Fate, state: str, outcome: str | None
) -> None:
    """Each outcome has its state; a deferral costs no attempt."""

    async def handler(event: Received[Any]) -> Any:
        return answer

    async with running(inbox_database, handler) as deliveries:
        event = deliveries.publish("order.paid")
        assert (await deliveries.wait_for(event)).fate is fate

    found = row(inbox_database, event)
    assert (found["state"], found["outcome"]) == (state, outcome)
    assert found["attempt_count"] == (0 if fate is Fate.DEFERRED else 1)
    assert found["defer_count"] == (1 if fate is Fate.DEFERRED else 0)
    assert leases(inbox_database) == []


async def test_one_delivery_of_a_key_runs_at_a_time_in_its_order(inbox_database: str) -> None:
    """Also while an earlier one waits for its next attempt."""
    seen: list[int] = []

    async def handler(event: Received[Any], ctx: Context) -> None:
        seen.append(event.data)
        if event.data == 1 and ctx.attempt == 1:
            raise OSError("once")

    async with running(inbox_database, handler) as deliveries:
        events = [deliveries.publish("order.paid", n, ordering_key="k") for n in range(4)]
        other = deliveries.publish("order.paid", 100, ordering_key="other")
        await deliveries.wait_for(other)
        await deliveries.wait_for(events[1])
        assert sorted(seen) == [0, 1, 100]
        await deliveries.advance(5.1)
        for event in (events[0], *events[1:]):
            await deliveries.wait_for(event)

    assert [each for each in seen if each < 100] == [0, 1, 1, 2, 3]


async def test_a_killed_process_leaves_its_deliveries_to_the_next(inbox_database: str) -> None:
    """After the lease, each by itself; nobody is charged for a crash beside others."""
    started = asyncio.Event()
    blocked = True
    alone: list[int] = []
    running_now = 0

    async def handler(event: Received[Any]) -> None:
        nonlocal running_now
        running_now += 1
        try:
            if blocked:
                if running_now == 3:
                    started.set()
                await asyncio.Event().wait()
            alone.append(running_now)
        finally:
            running_now -= 1

    async with running(inbox_database, handler) as deliveries:
        events = [deliveries.publish("order.paid", n) for n in range(3)]
        await started.wait()
        await deliveries.crash()
        blocked, running_now = False, 0
        await deliveries.advance(61)
        await deliveries.restart()
        for event in events:
            assert (await deliveries.wait_for(event)).fate is Fate.DONE
        recovered = [each for each in deliveries.events if isinstance(each, LeaseRecovered)]

    assert alone == [1, 1, 1]
    assert [(each.attempt, each.alone) for each in recovered] == [(0, False)] * 3
    for event in events:
        found = row(inbox_database, event)
        assert (found["attempt_count"], found["stale_count"], found["suspect"]) == (1, 1, False)
        assert history(inbox_database, event) == ["created", "processing", "requeued:stale", "processing", "done"]


async def test_a_delivery_that_kills_its_process_is_failed_after_its_attempts(inbox_database: str) -> None:
    """It is found out alone, and its neighbour pays nothing."""
    entered: list[str] = []
    here = asyncio.Event()

    async def handler(event: Received[Any]) -> None:
        entered.append(event.data)
        here.set()
        if event.data == "poison" or len(entered) < 3:
            await asyncio.Event().wait()

    async with running(inbox_database, handler) as deliveries:
        poison = deliveries.publish("order.paid", "poison")
        neighbour = deliveries.publish("order.paid", "neighbour")
        while len(entered) < 2:
            here.clear()
            await here.wait()
        for _ in range(4):
            await deliveries.crash()
            await deliveries.advance(61)
            seen = entered.count("poison")
            await deliveries.restart()
            await until_async(
                async_of(lambda: entered.count("poison") > seen or row(inbox_database, poison)["state"] == "failed"),  # noqa: B023 -- waited for at once
                "it has begun once more, or was given up",
            )
        last = await deliveries.wait_for(poison)
        assert (await deliveries.wait_for(neighbour)).fate is Fate.DONE

    assert (last.fate, last.code) == (Fate.DEAD, "RETRIES_EXHAUSTED")
    assert row(inbox_database, poison)["error_code"] == "RETRIES_EXHAUSTED"
    found = row(inbox_database, neighbour)
    assert (found["state"], found["attempt_count"]) == ("done", 1)


class TestEffects:
    """`ctx.transaction()` and `ctx.complete(connection)`."""

    @pytest.fixture
    def effects(self, inbox_database: str) -> str:
        """A database with a table for effects."""
        with psycopg.connect(inbox_database) as connection:
            connection.execute("create table effects (event_id uuid primary key)")
        return inbox_database

    @staticmethod
    def made(database: str) -> list[Any]:
        """The events that had their effect."""
        with psycopg.connect(database) as connection:
            return [event_id for (event_id,) in connection.execute("select event_id from effects")]

    async def test_the_effect_and_the_completion_are_there_together(self, effects: str) -> None:
        """Without a word of the consumer's own."""

        async def handler(event: Received[Any], ctx: Context) -> None:
            async with ctx.transaction() as connection:
                await connection.execute("insert into effects values (%s)", [event.event_id])
                await ctx.complete(connection, {"total": 3})

        async with running(effects, handler) as deliveries:
            event = deliveries.publish("order.paid")
            assert (await deliveries.wait_for(event)).fate is Fate.DONE

        assert self.made(effects) == [event]
        assert row(effects, event)["result"] == {"total": 3}
        assert history(effects, event) == ["created", "processing", "done"]
        assert leases(effects) == []

    async def test_a_transaction_that_fails_leaves_neither(self, effects: str) -> None:
        """And the event is tried again."""
        calls = 0

        async def handler(event: Received[Any], ctx: Context) -> None:
            nonlocal calls
            calls += 1
            async with ctx.transaction() as connection:
                await connection.execute("insert into effects values (%s)", [event.event_id])
                await ctx.complete(connection)
                if calls == 1:
                    raise OSError("once")

        async with running(effects, handler) as deliveries:
            event = deliveries.publish("order.paid")
            assert (await deliveries.wait_for(event)).fate is Fate.RETRIED
            assert self.made(effects) == []
            await deliveries.advance(5.1)
            assert (await deliveries.wait_for(event)).fate is Fate.DONE

        assert self.made(effects) == [event]

    async def test_what_a_handler_says_after_its_completion_is_ignored_and_told(self, effects: str) -> None:
        """Its event stays completed."""

        async def handler(event: Received[Any], ctx: Context) -> None:
            async with ctx.transaction() as connection:
                await ctx.complete(connection)
            raise OSError("too late")

        async with running(effects, handler) as deliveries:
            event = deliveries.publish("order.paid")
            assert (await deliveries.wait_for(event)).fate is Fate.DONE
            (ignored,) = [each for each in deliveries.events if isinstance(each, OutcomeIgnored)]

        assert (ignored.answer, ignored.completed) == ("Retry", True)
        assert row(effects, event)["state"] == "done"

    async def test_a_completion_that_nobody_commits_is_none(self, effects: str) -> None:
        """The handler returned as if all were well; the event comes again, with an attempt less."""
        calls = 0

        async def handler(event: Received[Any], ctx: Context) -> None:
            nonlocal calls
            calls += 1
            async with await psycopg.AsyncConnection.connect(effects) as connection:
                await ctx.complete(connection)
                if calls == 1:
                    await connection.rollback()

        async with running(effects, handler) as deliveries:
            event = deliveries.publish("order.paid")
            first = await deliveries.wait_for(event)
            assert (first.fate, first.code) == (Fate.RETRIED, "UNCOMMITTED")
            await deliveries.advance(5.1)
            assert (await deliveries.wait_for(event)).fate is Fate.DONE

        assert calls == 2

    async def test_a_completion_that_nobody_awaits_leaves_no_effect(self, effects: str) -> None:
        """Committed without it, the effect would be repeated by each attempt."""

        async def handler(event: Received[Any], ctx: Context) -> None:
            async with ctx.transaction() as connection:
                await connection.execute("insert into effects values (%s)", [event.event_id])
                _ = ctx.complete(connection)

        async with running(effects, handler) as deliveries:
            event = deliveries.publish("order.paid")
            settled = await deliveries.wait_for(event)

        assert "write await before it" in settled.reason
        assert self.made(effects) == []

    async def test_a_completion_that_nobody_awaits_on_a_connection_of_ones_own_is_not_tried_again(
        self, effects: str
    ) -> None:
        """The effect is there, once, and the delivery says what is wrong with its handler."""

        async def handler(event: Received[Any], ctx: Context) -> None:
            async with await psycopg.AsyncConnection.connect(effects) as connection:
                await connection.execute("insert into effects values (%s)", [event.event_id])
                _ = ctx.complete(connection)

        async with running(effects, handler) as deliveries:
            event = deliveries.publish("order.paid")
            settled = await deliveries.wait_for(event)

        assert (settled.fate, settled.code) == (Fate.DEAD, "UNAWAITED")
        assert self.made(effects) == [event]

    async def test_whoever_has_lost_the_lease_cannot_complete(self, effects: str) -> None:
        """Its effect is rolled back with it: the error is raised within the transaction."""
        raised: list[BaseException] = []
        late = asyncio.Event()
        calls = 0

        async def handler(event: Received[Any], ctx: Context) -> None:
            nonlocal calls
            calls += 1
            if calls == 1:
                try:
                    async with ctx.transaction() as connection:
                        await connection.execute("insert into effects values (%s)", [event.event_id])
                        with psycopg.connect(effects, autocommit=True) as other:
                            other.execute("update inbox_deliveries set token = gen_random_uuid()")
                        await ctx.complete(connection)
                except LeaseLostError as error:
                    raised.append(error)
                    late.set()
                    raise

        async with running(effects, handler) as deliveries:
            event = deliveries.publish("order.paid")
            lost = await deliveries.wait_for(event)

        assert lost.fate is Fate.LEASE_LOST
        assert len(raised) == 1
        assert self.made(effects) == []

    async def test_an_open_completion_keeps_no_other_lease_from_being_renewed(self, effects: str) -> None:
        """One transaction stays open for three leases and more; nine other handlers keep theirs."""
        inside, release = asyncio.Event(), asyncio.Event()
        begun: set[Any] = set()

        async def handler(event: Received[Any], ctx: Context) -> None:
            begun.add(event.event_id)
            if event.data == "first":
                async with ctx.transaction() as connection:
                    await connection.execute("insert into effects values (%s)", [event.event_id])
                    await ctx.complete(connection)
                    inside.set()
                    await release.wait()
            else:
                await release.wait()

        place = Place(effects, lease_seconds=10)
        async with in_memory(consumer_of(handler, timeout=None), database=place) as deliveries:
            first = deliveries.publish("order.paid", "first")
            others = [deliveries.publish("order.paid", n) for n in range(9)]
            await inside.wait()
            await until_async(async_of(lambda: len(begun) == 10), "all ten have begun")
            for beat in range(1, 13):
                await deliveries.advance(2.5)
                await until_async(async_of(lambda: _beats(deliveries) >= beat), "the heartbeat was answered")  # noqa: B023 -- waited for at once
            assert not [each for each in deliveries.events if isinstance(each, LeaseRecovered)]
            release.set()
            for event in (first, *others):
                assert (await deliveries.wait_for(event)).fate is Fate.DONE

        assert {each["attempt_count"] for each in rows(effects)} == {1}
        assert self.made(effects) == [first]

    async def test_a_plain_function_completes_in_its_thread(self, effects: str) -> None:
        """With a synchronous connection, and without await."""

        def handler(event: Received[Any], ctx: Context) -> None:
            with ctx.transaction() as connection:
                connection.execute("insert into effects values (%s)", [event.event_id])
                ctx.complete(connection)

        async with running(effects, handler) as deliveries:
            event = deliveries.publish("order.paid")
            assert (await deliveries.wait_for(event)).fate is Fate.DONE

        assert self.made(effects) == [event]


async def test_what_postgres_cannot_keep_becomes_a_dead_letter_and_holds_nobody_up(inbox_database: str) -> None:
    """A NUL in a text is valid JSON, and no valid jsonb; what came with it is stored all the same."""

    async def handler(event: Received[Any]) -> None: ...

    async with running(inbox_database, handler) as deliveries:
        events = [deliveries.publish("order.paid", {"text": "\0" if n == 2 else "fine"}) for n in range(5)]
        fates = [(await deliveries.wait_for(event)).fate for event in events]
        (dead,) = deliveries.dead_letters

    assert fates == [Fate.UNDECODABLE if n == 2 else Fate.DONE for n in range(5)]
    assert dead.event_id == str(events[2])
    assert "the inbox cannot store it" in dead.reason
    assert len(rows(inbox_database)) == 4


async def test_a_row_that_holds_no_event_is_failed_and_kept(inbox_database: str) -> None:
    """Somebody wrote it by hand; no handler can be called with it."""

    async def handler(event: Received[Any]) -> None: ...

    with psycopg.connect(inbox_database) as connection:
        connection.execute(
            "insert into inbox_deliveries (consumer, event_id, event_type, envelope) "
            "values ('billing', gen_random_uuid(), 'order.paid', '{}')"
        )
    async with running(inbox_database, handler) as deliveries:
        await deliveries.advance(1)
        await until_async(async_of(lambda: rows(inbox_database)[0]["state"] == "failed"), "it is failed")
        assert len(deliveries.dead_letters) == 1

    (found,) = rows(inbox_database)
    assert (found["outcome"], found["error_code"], found["attempt_count"]) == ("invalid", "UNDECODABLE", 0)
    assert leases(inbox_database) == []
