"""What is missing in an inbox is rebuilt from the outbox, or from what a consumer's own function tells."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from consumers import ConfigurationError, Consumer, Missing, Received
from consumers.events import Fate
from consumers.inbox import origins, rebuilding
from consumers.inbox.rebuilding import Books, Whose, reconciliation
from consumers.inbox.reconciling import Reconciliation, Tally
from consumers.testing import in_memory
from relay import Event, emit
from relay.errors import OperateError
from relay.postgres.connect import connect_async
from tests.support.inbox import history, rows
from tests.support.upkeep import count, fill, hand_on, once, somebody_waits

NOW = datetime.now(UTC)


async def handle(event: Received[Any]) -> None:
    """A handler."""


def consumer_of(*patterns: str) -> Consumer:
    """A consumer with an inbox, of these types."""
    consumer = Consumer("billing", dedup="inbox")
    for pattern in patterns or ("order.*",):
        consumer.on(pattern)(handle)
    return consumer


@dataclass
class Desk:
    """Reconciles, as the command does."""

    database: str
    consumer: Consumer
    page: int = 500
    retention: timedelta | None = timedelta(days=90)
    outbox_schema: str = "public"
    progress: Callable[[str, int], None] = lambda _what, _count: None
    complaints: list[str] = field(default_factory=list)

    async def run(self, *, restart: bool = False) -> Tally:
        """To the end."""
        async with self._reconciliation() as reconciling:
            return await reconciling.run(restart=restart)

    async def plan(self) -> Tally:
        """Counting only."""
        async with self._reconciliation() as reconciling:
            return await reconciling.plan()

    @asynccontextmanager
    async def _reconciliation(self) -> AsyncIterator[Reconciliation]:
        books = Books(
            url=self.database,
            app="",
            schema="public",
            outbox_schema=self.outbox_schema,
            retention=self.retention,
        )
        whose = Whose(
            consumer=self.consumer.name,
            handlers=self.consumer.handlers,
            shard_key=self.consumer.shard_by,
            tell=self.consumer.tell_missing,
        )
        async with reconciliation(
            books, whose, page=self.page, progress=self.progress, complain=self.complaints.append
        ) as reconciling:
            yield reconciling


def emitted(database: str, *events: Event) -> list[UUID]:
    """The ids of events that are in the outbox now."""
    with psycopg.connect(database) as connection:
        return [emit(connection, event).event_id for event in events]


def order(number: int = 1, event_type: str = "order.paid", **more: Any) -> Event:
    """An event."""
    return Event(
        event_type=event_type, aggregate_type="order", aggregate_id=f"o-{number}", data={"number": number}, **more
    )


def missing(number: int, **more: Any) -> Missing:
    """An event that somebody else knows of."""
    values: dict[str, Any] = {
        "event_id": UUID(int=number + 1),
        "event_type": "order.paid",
        "data": {"number": number},
        "occurred_at": NOW,
        "aggregate_id": f"o-{number}",
    }
    return Missing(**(values | more))


def stored(database: str) -> list[UUID]:
    """The ids of what the inbox has, in the order of the outbox."""
    return [row["event_id"] for row in sorted(rows(database), key=lambda row: row["sequence"])]


async def test_what_is_missing_is_rebuilt_from_the_outbox_and_handled(inbox_database: str) -> None:
    """As if the relay's message had brought it: published or not, with its key, attributes and sequence."""
    seen: list[Received[Any]] = []
    consumer = Consumer("billing", dedup="inbox")

    @consumer.on("order.*")
    async def note(event: Received[Any]) -> None:
        seen.append(event)

    ids = emitted(
        inbox_database, order(1, ordering_key="o-1", attributes={"note": "ä"}), order(2, event_type="invoice.sent")
    )
    with psycopg.connect(inbox_database) as connection:
        connection.execute("update outbox_events set published_at = now(), message_id = 'm-1', topic = 'orders'")
    ids += emitted(inbox_database, order(3))

    tally = await Desk(inbox_database, consumer).run()
    assert (tally.seen, tally.missing, tally.stored, tally.refused, tally.passed) == (2, 2, 2, 0, {})
    assert stored(inbox_database) == [ids[0], ids[2]]
    assert history(inbox_database, ids[0]) == ["created"]

    async with in_memory(consumer, database=inbox_database) as deliveries:
        for event in (ids[0], ids[2]):
            assert (await deliveries.wait_for(event)).fate is Fate.DONE
    first = next(event for event in seen if event.event_id == ids[0])
    assert (first.data, first.ordering_key, first.message_id) == ({"number": 1}, "o-1", "m-1")
    assert (first.aggregate_type, first.aggregate_id, first.sequence) == ("order", "o-1", 1)
    assert first.attributes["note"] == "ä"
    assert first.created_at is not None


async def test_what_is_there_stays_as_it_is_and_a_plan_changes_nothing(inbox_database: str) -> None:
    """Once it is complete, there is nothing to do."""
    emitted(inbox_database, *map(order, range(5)))
    desk = Desk(inbox_database, consumer_of())
    with psycopg.connect(inbox_database) as connection:
        connection.execute(
            "insert into inbox_deliveries (consumer, event_id, event_type, envelope, state, outcome) "
            "select 'billing', event_id, event_type, payload, 'done', 'ok' from outbox_events where id <= 2"
        )

    plan = await desk.plan()
    assert (plan.seen, plan.missing, plan.stored) == (5, 3, 0)
    assert count(inbox_database, "select count(*) from inbox_checkpoints") == 0
    assert len(rows(inbox_database)) == 2

    tally = await desk.run()
    assert (tally.seen, tally.missing, tally.stored) == (5, 3, 3)
    assert [row["state"] for row in rows(inbox_database)] == ["done"] * 2 + ["pending"] * 3
    assert (await desk.run()).missing == 0


async def test_what_is_not_to_be_handled_is_left_out(inbox_database: str) -> None:
    """Discarded, forgotten, scheduled for later; and what may have been cleaned away since it was handled."""
    emitted(inbox_database, *map(order, range(4)), order(9, available_at=NOW + timedelta(days=1)))
    with psycopg.connect(inbox_database) as connection:
        connection.execute(
            "update outbox_events set failed_at = now(), failure_reason = 'discarded' where id = 1;"
            "update outbox_events set aggregate_id = '(forgotten)', payload = payload || '{\"redacted\": true}' "
            "where id = 2;"
            "update outbox_events set created_at = now() - interval '91 days' where id = 3"
        )
    tally = await Desk(inbox_database, consumer_of()).run()
    assert (tally.seen, tally.stored) == (1, 1)
    assert tally.passed == {"given up": 2, "too old": 1, "not due": 1}
    assert [row["sequence"] for row in rows(inbox_database)] == [4]


async def test_what_was_ever_cleaned_away_is_not_rebuilt_whatever_the_retention_is_now(inbox_database: str) -> None:
    """It was handled; what is from before the cleaning began to keep it longer is left out."""
    emitted(inbox_database, order(1), order(2))
    with psycopg.connect(inbox_database) as connection:
        connection.execute("update outbox_events set created_at = now() - interval '10 days' where id = 1")
    fill(inbox_database, 1, age=timedelta(days=10))
    async with hand_on(inbox_database) as hand:
        assert (await once(hand.cleaning(days=7))).updated == 1

    for retention in (timedelta(days=90), None):
        tally = await Desk(inbox_database, consumer_of(), retention=retention).run()
        assert (tally.seen, tally.passed) == (1, {"too old": 1})


async def test_without_a_cleaning_nothing_is_too_old(inbox_database: str) -> None:
    """Where all is kept, all can be compared."""
    emitted(inbox_database, order())
    with psycopg.connect(inbox_database) as connection:
        connection.execute("update outbox_events set created_at = now() - interval '10 years'")
    assert (await Desk(inbox_database, consumer_of(), retention=None).run()).stored == 1


async def test_a_call_that_is_killed_is_followed_by_one_that_goes_on_there(inbox_database: str) -> None:
    """Nothing is stored twice or left out, and the counts are of both."""
    ids = emitted(inbox_database, *map(order, range(50)))
    entered = asyncio.Event()

    def progress(_: str, events: int) -> None:
        if events >= 30:
            entered.set()
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await Desk(inbox_database, consumer_of(), page=10, progress=progress).run()
    assert entered.is_set()
    assert stored(inbox_database) == ids[:20]

    seen: list[int] = []
    tally = await Desk(inbox_database, consumer_of(), page=10, progress=lambda _, events: seen.append(events)).run()
    assert seen == [30, 40, 50]
    assert (tally.resumed, tally.seen, tally.missing, tally.stored) == (True, 50, 50, 50)
    assert stored(inbox_database) == ids

    again = await Desk(inbox_database, consumer_of()).run()
    assert (again.resumed, again.seen, again.missing) == (False, 50, 0)


async def test_a_restart_begins_at_the_first_event(inbox_database: str) -> None:
    """Although an earlier call was killed halfway."""
    emitted(inbox_database, *map(order, range(20)))

    def progress(_: str, events: int) -> None:
        if events >= 20:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await Desk(inbox_database, consumer_of(), page=10, progress=progress).run()
    with psycopg.connect(inbox_database) as connection:
        connection.execute("delete from inbox_deliveries where sequence = 1")
    tally = await Desk(inbox_database, consumer_of()).run(restart=True)
    assert (tally.resumed, tally.seen, tally.stored) == (False, 20, 11)


async def test_two_calls_that_meet_store_each_event_once(inbox_database: str) -> None:
    """One of them stops, and says why."""
    emitted(inbox_database, *map(order, range(40)))
    results = await asyncio.gather(
        *(Desk(inbox_database, consumer_of(), page=5).run() for _ in range(3)), return_exceptions=True
    )
    stopped = [each for each in results if isinstance(each, OperateError)]
    assert len(stopped) >= 1
    assert all("another call reconciles 'billing'" in str(each) for each in stopped)
    if len(stopped) == 3:
        await Desk(inbox_database, consumer_of()).run()
    assert len(set(stored(inbox_database))) == len(rows(inbox_database)) == 40


async def test_an_event_of_a_transaction_that_commits_late_is_waited_for(inbox_database: str) -> None:
    """Its id is below those that were seen: a walk that had passed it would never come by again."""
    with psycopg.connect(inbox_database) as late:
        first = emit(late, order(1)).event_id
        (second,) = emitted(inbox_database, order(2))
        running = asyncio.create_task(Desk(inbox_database, consumer_of()).run())
        await somebody_waits(inbox_database, "query like '%outbox_settled%'")
        assert rows(inbox_database) == []
        late.commit()
        assert (await running).stored == 2
    assert stored(inbox_database) == [first, second]


async def test_a_transaction_that_stays_open_is_told_of(inbox_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What can be seen is rebuilt meanwhile."""
    monkeypatch.setattr(origins, "PATIENCE_SECONDS", 0.2)
    with psycopg.connect(inbox_database) as late:
        emit(late, order(1))
        emitted(inbox_database, order(2))
        desk = Desk(inbox_database, consumer_of())
        assert (await desk.run()).stored == 1
    assert [each.partition(",")[0] for each in desk.complaints] == [
        "a transaction from before the command is still open"
    ]


async def test_what_was_read_beside_a_transaction_that_stayed_open_is_read_again(
    inbox_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that was killed there is followed by one that begins at the first event, and misses none."""

    def progress(_: str, events: int) -> None:
        if events >= 6:
            raise asyncio.CancelledError

    with psycopg.connect(inbox_database) as late, monkeypatch.context() as impatient:
        impatient.setattr(origins, "PATIENCE_SECONDS", 0.2)
        first = emit(late, order(0)).event_id
        ids = [first, *emitted(inbox_database, *map(order, range(1, 10)))]
        killed = Desk(inbox_database, consumer_of(), page=2, progress=progress)
        with pytest.raises(asyncio.CancelledError):
            await killed.run()
    assert len(killed.complaints) == 1
    assert stored(inbox_database) == ids[1:5]

    desk = Desk(inbox_database, consumer_of(), page=2)
    tally = await desk.run()
    assert (desk.complaints, stored(inbox_database)) == ([], ids)
    assert (tally.seen, tally.missing, tally.stored) == (10, 6, 6)


async def test_pages_are_bounded_in_bytes(inbox_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many events a page may have, large ones come a few at a time."""
    monkeypatch.setattr(origins, "_PAGE_BYTES", 20_000)
    emitted(
        inbox_database,
        *(Event(event_type="order.paid", aggregate_type="o", aggregate_id="1", data="x" * 9_000) for _ in range(7)),
    )
    seen: list[int] = []
    tally = await Desk(inbox_database, consumer_of(), progress=lambda _, events: seen.append(events)).run()
    assert tally.stored == 7
    assert seen == [3, 6, 7]


async def test_a_row_that_cannot_become_a_delivery_is_told_and_the_others_are_stored(inbox_database: str) -> None:
    """Attributes that are none, written by hand; an event that the consumer's own shard_by fails on."""
    emitted(inbox_database, *map(order, range(4)))
    with psycopg.connect(inbox_database) as connection:
        connection.execute(
            """update outbox_events set attributes = '{"note": 7}' where id = 1;
            update outbox_events set attributes = ('{"note": ' || repeat('[', 5000) || repeat(']', 5000) || '}')::jsonb
             where id = 2"""
        )
    consumer = Consumer("billing", dedup="inbox", shard_by=lambda event: str(1 // (event.data["number"] - 2)))
    consumer.on("order.*")(handle)
    desk = Desk(inbox_database, consumer)
    tally = await desk.run()
    assert (tally.seen, tally.missing, tally.stored, tally.refused) == (4, 4, 1, 3)
    assert len(desk.complaints) == 3
    assert [row["sequence"] for row in rows(inbox_database)] == [4]


async def test_a_database_without_an_outbox_is_refused(inbox_database: str) -> None:
    """With what else there is."""
    with pytest.raises(
        ConfigurationError, match=r"schema 'other' of this database has no outbox_events .* RELAY_SCHEMA"
    ):
        await Desk(inbox_database, consumer_of(), outbox_schema="other").run()


class TestAFunctionOfTheConsumersOwn:
    """Tells what there should be."""

    async def test_it_is_asked_page_after_page_until_it_says_none(self, inbox_database: str) -> None:
        """With the position that it gave, whatever JSON that is."""
        consumer, asked = consumer_of(), list[tuple[Any, int]]()

        @consumer.reconcile
        async def tell(position: Any, page: int) -> tuple[list[Missing], Any]:
            asked.append((position, page))
            done = position["done"] if position else 0
            return [missing(number) for number in range(done, done + 2)], {"done": done + 2} if done < 4 else None

        tally = await Desk(inbox_database, consumer, page=2).run()
        assert asked == [(None, 2), ({"done": 2}, 2), ({"done": 4}, 2)]
        assert (tally.seen, tally.stored) == (6, 6)
        assert {row["event_id"] for row in rows(inbox_database)} == {UUID(int=number + 1) for number in range(6)}

    async def test_what_it_tells_is_handled_like_any_other(self, inbox_database: str) -> None:
        """With its data, actor and attributes."""
        seen: list[Received[Any]] = []
        consumer = Consumer("billing", dedup="inbox")
        consumer.on("order.*")(seen.append)

        @consumer.reconcile
        async def tell(position: Any, page: int) -> tuple[list[Missing], Any]:
            event = missing(
                1, actor={"type": "user", "id": "7"}, sequence=5, ordering_key="o-1", attributes={"note": "ä"}
            )
            return [event, event], None

        assert (await Desk(inbox_database, consumer).run()).stored == 1
        async with in_memory(consumer, database=inbox_database) as deliveries:
            await deliveries.wait_for(UUID(int=2))
        (event,) = seen
        assert (event.data, event.actor, event.sequence) == ({"number": 1}, {"type": "user", "id": "7"}, 5)
        assert (event.occurred_at, event.ordering_key, event.attributes["note"]) == (NOW, "o-1", "ä")

    async def test_what_cannot_be_stored_is_told_and_the_others_are(self, inbox_database: str) -> None:
        """Without a word of its data."""
        consumer = consumer_of()

        @consumer.reconcile
        async def tell(position: Any, page: int) -> tuple[list[Missing], Any]:
            return [
                *map(missing, range(3)),
                missing(7, data="a\0b"),
                missing(8, event_id="no id"),
                missing(9, data=object()),
                missing(10, event_type="invoice.sent"),
                missing(11, occurred_at=NOW - timedelta(days=91)),
            ], None

        desk = Desk(inbox_database, consumer)
        tally = await desk.run()
        assert (tally.seen, tally.missing, tally.stored, tally.refused) == (6, 6, 3, 3)
        assert tally.passed == {"not handled": 1, "too old": 1}
        assert len(rows(inbox_database)) == 3
        told = "\n".join(desk.complaints)
        assert len(desk.complaints) == 3
        assert all(f"not stored: event {name}: " in told for name in (UUID(int=8), "no id", UUID(int=10)))

    @pytest.mark.parametrize(
        ("answer", "words"),
        [
            (([], "same"), "answered with the position that it was called with"),
            (([], {1, 2}), "a position that cannot be kept as JSON"),
            (([], float("nan")), "a position that cannot be kept as JSON"),
            (([], "a\0"), "a position that cannot be kept as JSON"),
            (([missing(1)], "a\0"), "a position that cannot be kept as JSON"),
            (([missing(1)], "\ud800"), "a position that cannot be kept as JSON"),
            ((["event"], None), "told a str; it has to tell consumers.Missing"),
            (None, "failed: TypeError"),
            (OSError("away"), "failed: OSError: away"),
        ],
    )
    async def test_what_it_does_wrong_is_said_in_a_sentence(self, inbox_database: str, answer: Any, words: str) -> None:
        """And what was stored before stays."""
        consumer = consumer_of()

        @consumer.reconcile
        async def tell(position: Any, page: int) -> tuple[list[Missing], Any]:
            if position is None:
                return [missing(1)], "same"
            if isinstance(answer, Exception):
                raise answer
            return answer  # type: ignore[no-any-return]

        with pytest.raises(OperateError, match=words):
            await Desk(inbox_database, consumer).run()
        assert len(rows(inbox_database)) == 1


async def test_behind_a_pooler_it_is_the_same(inbox_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing is prepared, and each message is a transaction of its own; also behind an event that is refused."""

    async def connect(url: str, app: str) -> psycopg.AsyncConnection[Any]:
        connection = await connect_async(url, app)
        connection.prepare_threshold = None
        return connection

    monkeypatch.setattr(rebuilding, "connect_async", connect)
    consumer = consumer_of()

    @consumer.reconcile
    async def tell(position: Any, page: int) -> tuple[list[Missing], Any]:
        start = position or 0
        told = [missing(number, data="a\0b" if number == 4 else number) for number in range(start, start + 3)]
        return told, start + 3 if start < 6 else None

    tally = await Desk(inbox_database, consumer).run()
    assert (tally.seen, tally.missing, tally.stored, tally.refused) == (9, 9, 8, 1)
    assert len(rows(inbox_database)) == 8


async def test_it_stores_beside_a_consumer_that_receives_the_same(inbox_database: str) -> None:
    """Each event is there once, whoever was first."""
    consumer, ids = consumer_of(), [uuid4() for _ in range(200)]

    @consumer.reconcile
    async def tell(position: Any, page: int) -> tuple[list[Missing], Any]:
        start = position or 0
        events = [missing(0, event_id=each) for each in ids[start : start + page]]
        return events, start + page if start + page < len(ids) else None

    async with in_memory(consumer, database=inbox_database) as deliveries:
        for each in ids:
            deliveries.publish("order.paid", event_id=each)
        tally = await Desk(inbox_database, consumer, page=20).run()
        for each in ids:
            await deliveries.finish(each)
    assert tally.seen == 200
    assert len(rows(inbox_database)) == 200
    assert {row["state"] for row in rows(inbox_database)} == {"done"}
