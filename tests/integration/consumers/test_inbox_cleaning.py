"""What ended long ago is removed from an inbox, in pages, by one process at a time."""

import asyncio
from datetime import timedelta

import psycopg
import pytest

from consumers import Consumer, Context, Received
from consumers.events import Fate, InboxCleaned, StartWarning
from consumers.inbox.cleaning import ROUND_SECONDS, SILENCE_SECONDS
from consumers.testing import in_memory
from consumers.testing.database import Place
from idempotency import StoreUnavailableError
from tests.support.inbox import rows
from tests.support.moving import where_they_are
from tests.support.upkeep import count, fill, hand_on, once, somebody_waits, states

OLD, YOUNG = timedelta(days=91), timedelta(days=89)


async def test_what_ended_before_the_retention_goes_with_its_history(inbox_database: str) -> None:
    """Done and discarded; failed ones never, nor what is under way or another consumer's."""
    fill(inbox_database, 3, age=OLD)
    fill(inbox_database, 1, age=OLD, state="failed", outcome="discarded")
    fill(inbox_database, 1, age=OLD, state="failed", outcome="dead")
    fill(inbox_database, 1, age=OLD, consumer="shipping")
    fill(inbox_database, 2, age=YOUNG)
    with psycopg.connect(inbox_database) as connection:
        connection.execute(
            "insert into inbox_deliveries (consumer, event_id, event_type, envelope, created_at) "
            "values ('billing', gen_random_uuid(), 'order.paid', '{}', clock_timestamp() - interval '91 days')"
        )
    async with hand_on(inbox_database) as hand:
        report = await once(hand.cleaning())

    assert report.updated == 4
    assert [(event.consumer, event.deliveries) for event in hand.told] == [("billing", 4)]
    left = [(row["consumer"], row["state"], row["outcome"]) for row in rows(inbox_database)]
    assert left == [
        ("billing", "failed", "dead"),
        ("shipping", "done", "ok"),
        ("billing", "done", "ok"),
        ("billing", "done", "ok"),
        ("billing", "pending", None),
    ]
    orphans = "select count(*) from inbox_history where delivery_id not in (select id from inbox_deliveries)"
    assert count(inbox_database, orphans) == 0
    assert count(inbox_database, "select count(*) from inbox_history") == 8


async def test_what_ended_goes_into_the_archive_with_its_history(inbox_database: str) -> None:
    """Each by its own month, row by row as it was, whatever the consumer is called."""
    name = "o'bill\\ing %s"
    fill(inbox_database, 7, age=OLD, consumer=name)
    fill(inbox_database, 2, age=YOUNG, consumer=name)
    tables = {"inbox_deliveries": 7, "inbox_history": 14}
    before = where_they_are(inbox_database, *tables)
    async with hand_on(inbox_database) as hand:
        assert (await once(hand.cleaning(consumer=name, page=3, to="archive"))).updated == 7

    for table, count_ in tables.items():
        after = where_they_are(inbox_database, table, f"archive.{table}")
        assert len(after[f"archive.{table}"]) == count_
        assert sorted(after[table] + after[f"archive.{table}"]) == before[table]


async def test_a_round_is_walked_in_pages_and_ends_where_the_young_ones_begin(inbox_database: str) -> None:
    """What is behind them is not looked at: nothing there can have ended so long ago."""
    fill(inbox_database, 25, age=OLD)
    fill(inbox_database, 40, age=YOUNG)
    async with hand_on(inbox_database) as hand:
        report = await once(hand.cleaning(page=10))

    assert (report.updated, report.processed) == (25, 30)
    assert states(inbox_database) == {"done": 40}


async def test_a_process_that_is_stopped_is_followed_by_another_where_it_was(inbox_database: str) -> None:
    """When it has been silent for a minute; what was removed stays removed."""
    fill(inbox_database, 30, age=OLD)
    async with hand_on(inbox_database) as hand:
        stopped = await once(hand.cleaning("one", page=10), until=lambda: states(inbox_database)["done"] < 20)
        assert stopped.updated == 20

        assert (await once(hand.cleaning("two", page=10))).processed == 0
        hand.skew = SILENCE_SECONDS + 1
        assert (await once(hand.cleaning("two", page=10))).updated == 10
    assert states(inbox_database) == {}


async def test_a_process_that_is_killed_in_mid_page_leaves_it_as_it_was(inbox_database: str) -> None:
    """Its statement is done or not, with the checkpoint; whoever comes next misses nothing."""
    fill(inbox_database, 20, age=OLD)
    async with hand_on(inbox_database) as hand:
        await once(hand.cleaning("one", page=5), until=lambda: states(inbox_database)["done"] < 20)
        with psycopg.connect(inbox_database) as blocker:
            blocker.execute("lock table inbox_history in access exclusive mode")
            killed = asyncio.create_task(once(hand.cleaning("one", page=5)))
            await somebody_waits(inbox_database)
            hand.sessions[-1].cut()
            killed.cancel()
            with pytest.raises((asyncio.CancelledError, StoreUnavailableError)):
                await killed
        assert (await once(hand.cleaning("one", page=5))).updated >= 10
    assert states(inbox_database) == {}
    assert count(inbox_database, "select count(*) from inbox_history") == 0


async def test_of_several_processes_one_cleans(inbox_database: str) -> None:
    """All at once, each row is removed once, and the others see that they are not needed."""
    fill(inbox_database, 200, age=OLD)
    async with hand_on(inbox_database) as hand:
        reports = await asyncio.gather(*(once(hand.cleaning(str(number), page=10)) for number in range(5)))
    assert sum(report.updated for report in reports) == 200
    assert sum(report.updated > 0 for report in reports) == 1
    assert states(inbox_database) == {}


async def test_the_next_round_begins_at_the_first_row_when_it_is_time(inbox_database: str) -> None:
    """What was held, or ended only then, is found."""
    fill(inbox_database, 5, age=OLD)
    async with hand_on(inbox_database) as hand:
        with psycopg.connect(inbox_database) as other:
            other.execute("select from inbox_deliveries order by id limit 2 for update")
            assert (await once(hand.cleaning())).updated == 3
        assert (await once(hand.cleaning("two"))).updated == 0
        hand.skew = ROUND_SECONDS + 1
        assert (await once(hand.cleaning("two"))).updated == 2


async def test_what_a_longer_retention_comes_too_late_for_is_not_forgotten(inbox_database: str) -> None:
    """The checkpoint says how far anything was ever cleaned away; a reconciliation goes by it."""
    async with hand_on(inbox_database) as hand:
        await once(hand.cleaning(days=1))
        until = "select (position ->> 'until')::float8 from inbox_checkpoints"
        first = count(inbox_database, until)
        hand.skew = ROUND_SECONDS + 1
        await once(hand.cleaning(days=90))
        assert count(inbox_database, until) == first


async def test_a_consumer_that_runs_cleans_beside_its_work(inbox_database: str) -> None:
    """By its own clock, and duplicates within the retention are recognised."""

    async def handler(event: Received[str], ctx: Context) -> None: ...

    consumer = Consumer("billing", dedup="inbox")
    consumer.on("order.paid")(handler)
    place = Place(inbox_database, retention=timedelta(minutes=5))
    async with in_memory(consumer, database=place, retention=timedelta(minutes=4)) as deliveries:
        event = deliveries.publish("order.paid")
        assert (await deliveries.wait_for(event)).fate is Fate.DONE
        deliveries.repeat(event)
        assert (await deliveries.wait_for(event)).fate is Fate.DUPLICATE
        await deliveries.advance(ROUND_SECONDS)
        async with asyncio.timeout(20):
            while not any(isinstance(each, InboxCleaned) for each in deliveries.events):
                # By steps in which a pass does not lose its time.
                await deliveries.advance(1.0)
                await asyncio.sleep(0.01)
        warnings = [each.sentence for each in deliveries.events if isinstance(each, StartWarning)]
    assert rows(inbox_database) == []
    assert warnings == []


async def test_a_retention_that_is_shorter_than_the_brokers_is_warned_of(inbox_database: str) -> None:
    """A message that comes once more after the cleaning is handled once more."""
    consumer = Consumer("billing", dedup="inbox")

    @consumer.on("order.paid")
    async def handle(event: Received[str]) -> None: ...

    place = Place(inbox_database, retention=timedelta(days=7))
    async with in_memory(consumer, database=place) as deliveries:
        (warning,) = [each.sentence for each in deliveries.events if isinstance(each, StartWarning)]
    assert warning.startswith("INBOX_RETENTION is 7d, and the subscription keeps messages for 7d: ")
