"""A handler whose revision rises handles again what the one before has ended, as its author says."""

import asyncio
from collections import Counter
from typing import Any, Literal

import psycopg
import pytest

from consumers import Consumer, Context, Dead, Received, Skip
from consumers.events import Fate, RevisionRequeued
from consumers.inbox.revising import DEPLOY_SECONDS, SILENCE_SECONDS
from consumers.testing import Deliveries, in_memory
from tests.support.inbox import history, row, rows
from tests.support.upkeep import Hand, count, fill, hand_on, once, somebody_waits, states

OnRise = Literal["nothing", "failed", "all"]


def consumer_of(revision: int, on_rise: OnRise = "nothing", handler: Any = None, pattern: str = "order.*") -> Consumer:
    """A consumer of orders, of this revision."""
    consumer = Consumer("billing", dedup="inbox")

    async def handle(event: Received[Any]) -> None: ...

    consumer.on(pattern, revision=revision, on_rise=on_rise)(handler or handle)
    return consumer


async def handled(deliveries: Deliveries, events: int) -> list[str]:
    """The event ids of what is done now, when so many are."""
    async with asyncio.timeout(10):
        while len(done := [each for each in deliveries.settled if each.fate is Fate.DONE]) < events:
            await deliveries.advance(0.5)  # until the next look at the table
            await asyncio.sleep(0.02)  # the database's time, beside which leases would run out
    return [str(each.subject.event_id) for each in done]


async def first_release(database: str) -> tuple[Any, Any]:
    """An event that has failed, and one that is done."""

    async def handle(event: Received[Any]) -> Dead | None:
        return Dead("no such account", "GONE") if event.data == "fails" else None

    async with in_memory(consumer_of(1, handler=handle), database=database) as deliveries:
        failed, done = deliveries.publish("order.paid", "fails"), deliveries.publish("order.sent")
        assert (await deliveries.wait_for(failed)).fate is Fate.DEAD
        assert (await deliveries.wait_for(done)).fate is Fate.DONE
    assert [each["handler_version"] for each in rows(database)] == [1, 1]
    return failed, done


@pytest.mark.parametrize(
    ("on_rise", "again"), [("nothing", set[str]()), ("failed", {"failed"}), ("all", {"failed", "done"})]
)
async def test_a_rise_has_handled_again_what_its_author_says(
    inbox_database: str, on_rise: OnRise, again: set[str]
) -> None:
    """From its first attempt on, with the reason in its history."""
    failed, done = await first_release(inbox_database)
    names = {"failed": str(failed), "done": str(done)}

    async with in_memory(consumer_of(2, on_rise), database=inbox_database) as deliveries:
        new = str(deliveries.publish("order.paid"))
        assert sorted(await handled(deliveries, 1 + len(again))) == sorted([new, *(names[each] for each in again)])
        assert [each.attempt for each in deliveries.settled] == [1] * (1 + len(again))
        requeued = sum(each.deliveries for each in deliveries.events if isinstance(each, RevisionRequeued))
    assert requeued == len(again)

    for name, event in (("failed", failed), ("done", done)):
        found, entries = row(inbox_database, event), history(inbox_database, event)
        if name in again:
            assert (found["state"], found["outcome"], found["handler_version"]) == ("done", "ok", 2)
            assert (found["error"], found["error_code"], found["attempt_count"]) == (None, None, 1)
            assert entries == ["created", "processing", name, "requeued:revision", "processing", "done"]
        else:
            assert (found["handler_version"], len(entries)) == (1, 3)


async def test_a_second_start_does_nothing_again_and_neither_does_a_fall(inbox_database: str) -> None:
    """Once is once, however often processes start; what falls and rises again has risen."""
    fill(inbox_database, 3, state="failed", outcome="dead", revision=1)
    async with hand_on(inbox_database) as hand:
        assert (await once(hand.revising(consumer_of(2, "failed")))).updated == 3
        end(inbox_database, revision=2)
        await second_round(hand, consumer_of(2, "failed"))
        assert (await once(hand.revising(consumer_of(2, "failed")))).updated == 0

        fill(inbox_database, 1, state="failed", outcome="dead", revision=1)
        assert (await once(hand.revising(consumer_of(1, "failed")))).updated == 0
        assert states(inbox_database) == {"failed": 4}
        assert (await once(hand.revising(consumer_of(2, "failed")))).updated == 1


def end(database: str, revision: int) -> None:
    """Have what is pending fail, by a handler of this revision."""
    with psycopg.connect(database) as connection:
        connection.execute(
            "update inbox_deliveries set state = 'failed', outcome = 'dead', handler_version = %s, "
            "finished_at = clock_timestamp() where state = 'pending'",
            [revision],
        )


async def second_round(hand: Hand, consumer: Consumer) -> int:
    """How many the second round finds, after the deploy."""
    hand.skew += DEPLOY_SECONDS + 1
    return (await once(hand.revising(consumer))).updated


async def test_what_processes_of_the_release_before_end_meanwhile_is_found_after_the_deploy(
    inbox_database: str,
) -> None:
    """They run beside the new ones for a while; then the walk is over for good."""
    consumer = consumer_of(2, "failed")
    async with hand_on(inbox_database) as hand:
        runner = hand.revising(consumer)
        assert (await once(runner)).updated == 0
        fill(inbox_database, 2, state="failed", outcome="dead", revision=1)
        assert (await once(runner)).updated == 0
        hand.skew = DEPLOY_SECONDS + 1
        assert (await once(runner)).updated == 2
        fill(inbox_database, 1, state="failed", outcome="dead", revision=1)
        hand.skew += DEPLOY_SECONDS + 1
        assert (await once(runner)).updated == 0
    assert count(inbox_database, "select count(*) from inbox_checkpoints where finished") == 1


async def test_of_several_processes_that_start_at_once_one_walks(inbox_database: str) -> None:
    """Each row is handled again once."""
    fill(inbox_database, 300, state="failed", outcome="dead")
    consumer = consumer_of(2, "failed")
    async with hand_on(inbox_database) as hand:
        reports = await asyncio.gather(
            *(once(hand.revising(consumer, owner=str(number), page=20)) for number in range(5))
        )
    assert sum(report.updated for report in reports) == 300
    assert states(inbox_database) == {"pending": 300}
    query = "select count(*) from inbox_history where what = 'requeued:revision'"
    assert count(inbox_database, query) == 300


async def test_a_walk_that_was_cut_short_is_taken_over_where_it_was(inbox_database: str) -> None:
    """By a process that starts later, when nothing was heard of the first one for a minute."""
    fill(inbox_database, 100, state="failed", outcome="dead")
    consumer = consumer_of(2, "failed")
    async with hand_on(inbox_database) as hand:
        first = await once(
            hand.revising(consumer, page=10), until=lambda: states(inbox_database).get("pending", 0) >= 30
        )
        assert first.updated == 30
        assert (await once(hand.revising(consumer, owner="two"))).updated == 0
        hand.skew = SILENCE_SECONDS + 1
        assert (await once(hand.revising(consumer, owner="two"))).updated == 70
    query = "select max(entries) from (select count(*) as entries from inbox_history group by delivery_id) as found"
    assert count(inbox_database, query) == 3


async def test_what_was_discarded_or_is_not_its_own_is_left_as_it_is(inbox_database: str) -> None:
    """Of a type that a more specific handler is for, of another consumer, of a revision as high, or not ended."""
    for values in (
        {"state": "failed", "outcome": "discarded"},
        {"state": "failed", "outcome": "unknown"},
        {"state": "failed", "outcome": "dead", "revision": 2},
        {"state": "failed", "outcome": "dead", "consumer": "shipping"},
        {"state": "failed", "outcome": "dead", "event_type": "order.paid.twice"},
        {"state": "failed", "outcome": "dead", "event_type": "orders"},
        {"state": "done"},
    ):
        fill(inbox_database, **values)
    fill(inbox_database, state="failed", outcome="dead", revision=None)
    consumer = consumer_of(2, "failed")

    @consumer.on("order.paid.twice")
    async def twice(event: Received[Any]) -> None: ...

    async with hand_on(inbox_database) as hand:
        assert (await once(hand.revising(consumer))).updated == 1
    assert states(inbox_database) == {"failed": 6, "done": 1, "pending": 1}


async def test_all_is_all_but_what_was_discarded(inbox_database: str) -> None:
    """Also what may have been sent: the effects of what was done are repeated anyway."""
    for outcome in ("ok", "skipped"):
        fill(inbox_database, outcome=outcome)
    for outcome in ("dead", "invalid", "unknown", "discarded"):
        fill(inbox_database, state="failed", outcome=outcome)
    async with hand_on(inbox_database) as hand:
        assert (await once(hand.revising(consumer_of(2, "all")))).updated == 5
    assert states(inbox_database) == {"failed": 1, "pending": 5}


async def test_what_was_decided_between_page_and_statement_stays_decided(inbox_database: str) -> None:
    """An operator has discarded it while the walk waited for the row."""
    fill(inbox_database, 2, state="failed", outcome="dead")
    async with hand_on(inbox_database) as hand:
        with psycopg.connect(inbox_database) as operator:
            operator.execute(
                "update inbox_deliveries set outcome = 'discarded' where id = (select min(id) from inbox_deliveries)"
            )
            walking = asyncio.create_task(once(hand.revising(consumer_of(2, "failed"))))
            await somebody_waits(inbox_database)
            operator.commit()
            assert (await walking).updated == 1
    assert Counter(each["outcome"] for each in rows(inbox_database)) == {"discarded": 1, None: 1}


async def test_every_end_knows_the_revision_that_brought_it(inbox_database: str) -> None:
    """Done, skipped, failed, and completed in the handler's own transaction."""

    async def handle(event: Received[Any], ctx: Context) -> Any:
        match event.data:
            case "skip":
                return Skip("nothing to do")
            case "dead":
                return Dead("never", "NEVER")
            case "complete":
                async with ctx.transaction() as connection:
                    await ctx.complete(connection)
        return None

    async with in_memory(consumer_of(7, handler=handle), database=inbox_database) as deliveries:
        for data in ("", "skip", "dead", "complete"):
            await deliveries.wait_for(deliveries.publish("order.paid", data))
    assert [each["handler_version"] for each in rows(inbox_database)] == [7, 7, 7, 7]
