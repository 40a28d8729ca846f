"""Consumers that receive straight from the outbox of their database: each event once for each of them."""

import asyncio
import re
from collections import Counter
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import sql

from consumers import Consumer, Received
from consumers.events import Fate, InboxAway, InboxBack, Moved, StartWarning
from consumers.inbox.moving import moving_statement
from consumers.inbox.rebuilding import Books, Whose, reconciliation
from consumers.inbox.schema import INBOX
from consumers.sharding import shard_of
from consumers.sources import outbox as feeding_from
from consumers.sources.outbox import OutboxFeed
from consumers.testing import in_memory
from idempotency import StoreUnavailableError
from relay import emit
from relay.errors import InvariantError
from relay.outbox.grants import Role
from relay.outbox.outbox import Outbox
from relay.outbox.rows import MOVED
from relay.postgres.connect import connect_async
from relay.postgres.schema import Versions
from relay.publisher.message import message_of
from tests.support.commands import ROOT
from tests.support.inbox import history, row, rows
from tests.support.outbox import FAILED, PENDING, PUBLISHED, count, event
from tests.support.roles_of_tests import ROLES, as_relay
from tests.support.waiting import until_async
from tests.support.without_broker import NEVER, asked, at_work, drained, emitted, feeding, noting, taking


async def reached(number: int, seen: list[Any]) -> None:
    """Wait until so many were seen."""

    async def enough() -> bool:
        return len(seen) >= number

    await until_async(enough, f"{number} of them are handled")


async def test_an_event_is_handled_as_a_relay_would_have_published_it(inbox_database: str) -> None:
    """With the same body and attributes; both tables say what became of it."""
    seen: list[Received[Any]] = []
    (event_id,) = emitted(
        inbox_database, 7, ordering_key="order-7", attributes={"note": "ä", "traceparent": "00-a-b-01"}
    )
    outbox = Outbox(lambda: connect_async(inbox_database), "public", 20_000)
    async with outbox.batch() as batch:
        ((message),) = [message_of(each) for each in (await batch.claim(10, 10**6)).rows]
    await outbox.close()

    async with at_work(inbox_database, taking("billing", noting(seen))):
        await reached(1, seen)

        async def over() -> bool:
            return bool(row(inbox_database, seen[0].event_id)["state"] == "done")

        await until_async(over, "its row says so")

    (received,) = seen
    assert (str(received.event_id), received.ordering_key, received.aggregate_id) == (event_id, "order-7", "7")
    assert received.attributes == message.attributes
    assert (received.sequence, received.data["number"]) == (1, 7)
    found = row(inbox_database, received.event_id)
    assert found["envelope"] == asked(inbox_database, "select payload from outbox_events")[0][0]
    assert (found["consumer"], found["sequence"], found["ordering_key"], found["outcome"]) == (
        "billing",
        1,
        "order-7",
        "ok",
    )
    assert found["shard"] == shard_of("7")
    assert history(inbox_database, received.event_id) == ["created", "processing", "done"]
    assert asked(inbox_database, "select published_at is not null, message_id, topic from outbox_events") == [
        (True, MOVED, None)
    ]


async def test_several_consumers_in_several_processes_get_each_event_once(inbox_database: str) -> None:
    """Whoever moves an event does so for all of them."""
    numbers = range(400)
    billing: list[Received[Any]] = []
    shipping: list[Received[Any]] = []
    told: list[object] = []

    def consumers() -> list[Consumer]:
        return [taking("billing", noting(billing)), taking("shipping", noting(shipping), "order.paid")]

    async with at_work(inbox_database, *consumers(), told=told), at_work(inbox_database, *consumers(), told=told):
        ids = [
            *emitted(inbox_database, *numbers[:200]),
            *emitted(inbox_database, *numbers[200:300], ordering_key="one"),
            *emitted(inbox_database, *numbers[300:]),
        ]
        await reached(400, billing)
        await reached(400, shipping)

        async def over() -> bool:
            return {each["state"] for each in rows(inbox_database)} == {"done"}

        await until_async(over, "all of it is done")

    for seen in (billing, shipping):
        assert Counter(str(each.event_id) for each in seen) == Counter(ids)
        assert [each.data["number"] for each in seen if each.ordering_key] == list(numbers[200:300])
    assert len(rows(inbox_database)) == 800
    assert count(inbox_database, PUBLISHED) == 400
    moved = [each for each in told if isinstance(each, Moved)]
    assert (sum(each.events for each in moved), sum(each.deliveries for each in moved)) == (400, 800)


async def test_nobody_waits_for_a_poll(inbox_database: str) -> None:
    """Whoever stores an event wakes a consumer; it tells its neighbour in the process."""
    billing: list[Received[Any]] = []
    shipping: list[Received[Any]] = []
    consumers = taking("billing", noting(billing)), taking("shipping", noting(shipping))
    async with at_work(inbox_database, *consumers, poll=NEVER):
        for number in range(3):
            emitted(inbox_database, number)
            await reached(number + 1, billing)
            await reached(number + 1, shipping)


async def test_what_was_not_committed_is_nowhere(inbox_database: str) -> None:
    """The event is the service's own until it commits."""
    async with feeding(inbox_database) as feed:
        with psycopg.connect(inbox_database) as connection:
            emit(connection, event(1))
            assert (await feed.move()).events == 0
            connection.rollback()
        assert (await feed.move()).events == 0
        assert rows(inbox_database) == []


async def test_a_move_that_fails_leaves_nothing_and_is_made_again(inbox_database: str) -> None:
    """The consumer says that the inbox is away, and when it is back."""
    seen: list[Received[Any]] = []
    told: list[object] = []
    asked(inbox_database, "alter table inbox_deliveries add constraint away check (consumer <> 'billing')")
    async with at_work(inbox_database, taking("billing", noting(seen)), told=told):
        emitted(inbox_database, *range(3))

        async def away() -> bool:
            return any(isinstance(each, InboxAway) and each.operation == "move" for each in told)

        await until_async(away, "the consumer says that it is away")
        assert (count(inbox_database, PENDING), rows(inbox_database)) == (3, [])
        asked(inbox_database, "alter table inbox_deliveries drop constraint away")
        await reached(3, seen)
    assert [each for each in told if isinstance(each, InboxBack) and each.operation == "move"]
    assert sorted(each.data["number"] for each in seen) == [0, 1, 2]
    assert len(rows(inbox_database)) == 3


async def test_a_session_that_is_killed_in_the_middle_neither_loses_nor_doubles(inbox_database: str) -> None:
    """All is stored and marked, and nothing is committed, when it dies."""
    emitted(inbox_database, *range(20))
    asked(
        inbox_database,
        "create function hang() returns trigger language plpgsql as "
        "$$ begin perform pg_advisory_xact_lock(4711); return null; end $$",
    )
    asked(
        inbox_database, "create trigger hang after insert on inbox_history for each statement execute function hang()"
    )
    async with feeding(inbox_database) as dying, feeding(inbox_database) as other:
        with psycopg.connect(inbox_database, autocommit=True) as killer:
            killer.execute("select pg_advisory_lock(4711)")
            move = asyncio.create_task(dying.move())

            async def hangs() -> bool:
                found = killer.execute(
                    "select pid from pg_locks where locktype = 'advisory' and objid = 4711 and not granted"
                ).fetchall()
                return [killer.execute("select pg_terminate_backend(%s)", pid).fetchone() for pid in found] == [(True,)]

            await until_async(hangs, "the move has stored everything")
            with pytest.raises(StoreUnavailableError, match="the outbox was not reached"):
                await move
        assert (count(inbox_database, PUBLISHED), rows(inbox_database)) == (0, [])
        assert await drained(dying, other) == 20
    assert count(inbox_database, PUBLISHED) == len(rows(inbox_database)) == 20


async def test_a_key_is_never_ahead_of_itself(inbox_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two movers, small batches, rows that somebody else holds: the inbox has a beginning of each, after each step."""
    monkeypatch.setattr(feeding_from, "MOST_ROWS", 12)
    keys = [f"key-{number}" for number in range(5)]
    for start in range(0, 60, 6):
        for key in keys:
            emitted(inbox_database, *range(start, start + 6), ordering_key=key)
    by_key: dict[str, list[int]] = {
        key: [
            number
            for (number,) in asked(
                inbox_database, "select id from outbox_events where ordering_key = %s order by id", key
            )
        ]
        for key in keys
    }
    held = [by_key["key-0"][30], by_key["key-1"][0]]

    def beginnings() -> dict[str, int]:
        stored: dict[str, list[int]] = {key: [] for key in keys}
        for each in rows(inbox_database):
            stored[each["ordering_key"]].append(each["sequence"])
        for key, sequences in stored.items():
            assert sorted(sequences) == by_key[key][: len(sequences)]
        return {key: len(sequences) for key, sequences in stored.items()}

    async with feeding(inbox_database) as one, feeding(inbox_database) as other:
        with psycopg.connect(inbox_database) as holder:
            holder.execute("select from outbox_events where id = any (%s) for update", [held])
            # Of two that have keys left by turns one would always go on: what ends it is that nothing moves.
            in_vain = 0
            while in_vain < 2 * len(keys):
                done = await asyncio.gather(one.move(), other.move())
                in_vain = 0 if any(each.events for each in done) else in_vain + 1
                beginnings()
            assert beginnings() == {"key-0": 30, "key-1": 0, "key-2": 60, "key-3": 60, "key-4": 60}
        await drained(one, other)
    assert set(beginnings().values()) == {60}


async def test_a_key_that_two_movers_have_split_is_looked_at_again(inbox_database: str) -> None:
    """Who has its beginning says that there may be more; who has the rest moves none of it, and holds it no longer."""
    emitted(inbox_database, *range(20), ordering_key="split")
    async with feeding(inbox_database) as feed:
        with psycopg.connect(inbox_database) as other:
            other.execute("select from outbox_events where id > 8 for update")
            split, in_vain = await feed.move(), await feed.move()
        assert [(each.events, each.more) for each in (split, in_vain)] == [(8, True), (0, False)]
        assert await drained(feed) == 12


async def test_a_scheduled_event_comes_when_it_is_due(inbox_database: str) -> None:
    """And not before; what is for now does not wait for it."""
    seen: list[Received[Any]] = []
    emitted(inbox_database, 1)
    with psycopg.connect(inbox_database) as connection:
        connection.execute("update outbox_events set available_at = clock_timestamp() + interval '0.7 s' where id = 1")
    async with at_work(inbox_database, taking("billing", noting(seen)), poll=NEVER):
        emitted(inbox_database, 2)
        await reached(2, seen)
    assert [each.data["number"] for each in seen] == [2, 1]
    assert asked(inbox_database, "select bool_and(published_at >= available_at) from outbox_events") == [(True,)]


async def test_what_nobody_subscribes_to_is_over(inbox_database: str) -> None:
    """As with a topic without a subscription; a pattern is an exact type, or a beginning."""
    seen: list[Received[Any]] = []
    asked(inbox_database, "insert into inbox_subscribers (consumer, patterns) values ('shipping', '{orde*,x}')")
    for event_type in ("order.paid", "order.paid.twice", "order_paid", "Order.paid", "parcel.sent"):
        emitted(inbox_database, 1, event_type=event_type)
    async with at_work(inbox_database, taking("billing", noting(seen), "order.paid", "parcel.*")):
        await reached(2, seen)
    assert count(inbox_database, PUBLISHED) == 5
    stored = {(each["consumer"], each["event_type"]) for each in rows(inbox_database)}
    assert stored == {
        ("billing", "order.paid"),
        ("billing", "parcel.sent"),
        ("shipping", "order.paid"),
        ("shipping", "order.paid.twice"),
        ("shipping", "order_paid"),
    }


async def test_a_consumer_that_comes_later_gets_what_is_stored_from_then_on(inbox_database: str) -> None:
    """As with a new subscription; one that does not run gathers what is its own."""
    first: list[Received[Any]] = []
    later: list[Received[Any]] = []
    async with at_work(inbox_database, taking("billing", noting(first))):
        emitted(inbox_database, 1)
        await reached(1, first)
    async with at_work(inbox_database, taking("shipping", noting(later))):
        emitted(inbox_database, 2)
        await reached(1, later)
        assert len(first) == 1
    async with at_work(inbox_database, taking("billing", noting(first))):
        await reached(2, first)
    assert [[each.data["number"] for each in seen] for seen in (first, later)] == [[1, 2], [2]]


async def test_a_reconciliation_brings_what_was_before(inbox_database: str) -> None:
    """As if it had been moved for the consumer, and no event twice."""
    first: list[Received[Any]] = []
    later: list[Received[Any]] = []
    async with at_work(inbox_database, taking("billing", noting(first))):
        emitted(inbox_database, 1, ordering_key="order")
        await reached(1, first)
    consumer = taking("shipping", noting(later))
    async with at_work(inbox_database, consumer):
        emitted(inbox_database, 2)
        await reached(1, later)
        books = Books(url=inbox_database, app="", schema="public", outbox_schema="public", retention=None)
        whose = Whose(consumer="shipping", handlers=consumer.handlers, shard_key=consumer.shard_by, tell=None)
        async with reconciliation(books, whose, page=10, progress=lambda *_: None, complain=pytest.fail) as reconciling:
            assert (await reconciling.run(restart=False)).stored == 1
        await reached(2, later)
    assert [each.data["number"] for each in later] == [2, 1]
    moved, rebuilt = (row_of(inbox_database, name, first[0]) for name in ("billing", "shipping"))
    alike = ("event_type", "event_version", "sequence", "ordering_key", "shard", "envelope", "attributes")
    assert {name: rebuilt[name] for name in alike} == {name: moved[name] for name in alike}


def row_of(url: str, consumer: str, event: Received[Any]) -> dict[str, Any]:
    """A consumer's delivery of an event."""
    (found,) = [each for each in rows(url) if (each["consumer"], each["event_id"]) == (consumer, event.event_id)]
    return found


async def test_two_releases_side_by_side_lose_nothing(inbox_database: str) -> None:
    """What a consumer subscribes to is what any release of it ever did, until it is removed."""
    async with at_work(inbox_database, taking("billing", noting([]), "order.paid", "order.sent")):
        async with at_work(inbox_database, taking("billing", noting([]), "order.*", "order.paid")):
            pass
        assert asked(inbox_database, "select patterns from inbox_subscribers") == [
            (["order.*", "order.paid", "order.sent"],)
        ]


@pytest.mark.parametrize("fields", [{}, {"ordering_key": "k"}])
async def test_what_was_claimed_by_no_subscriber_is_found_by_the_next_claim(
    inbox_database: str, fields: dict[str, str]
) -> None:
    """It is as it was; nobody has to look for it first."""
    async with feeding(inbox_database) as feed:
        asked(inbox_database, "delete from inbox_subscribers")
        emitted(inbox_database, *range(5), **fields)
        assert not (await feed.move()).subscribed
        asked(inbox_database, "insert into inbox_subscribers (consumer, patterns) values ('billing', '{*}')")
        assert (await feed.move()).events == 5


async def test_a_consumer_that_runs_subscribes_again(inbox_database: str) -> None:
    """Removed under its feet, it loses none of what it would have moved itself."""
    seen: list[Received[Any]] = []
    async with at_work(inbox_database, taking("billing", noting(seen))):
        asked(inbox_database, "delete from inbox_subscribers")
        emitted(inbox_database, *range(3))
        await reached(3, seen)
    assert asked(inbox_database, "select consumer, patterns from inbox_subscribers") == [("billing", ["order.*"])]
    assert count(inbox_database, PUBLISHED) == 3


async def test_rows_that_failed_stay_where_they_are(inbox_database: str) -> None:
    """One that blocks its key does so here as well."""
    emitted(inbox_database, 1)
    emitted(inbox_database, 2, 3, ordering_key="blocked")
    emitted(inbox_database, 4)
    asked(
        inbox_database,
        "update outbox_events set failed_at = now(), failure_reason = 'max_attempts', "
        "blocks_key = ordering_key is not null where id in (1, 2)",
    )
    async with feeding(inbox_database) as feed:
        assert await drained(feed) == 1
        assert (count(inbox_database, FAILED), [each["sequence"] for each in rows(inbox_database)]) == (2, [4])
        asked(inbox_database, "update outbox_events set failure_reason = 'discarded', blocks_key = false where id = 2")
        assert await drained(feed) == 1
    assert [each["sequence"] for each in rows(inbox_database)] == [4, 3]


async def test_a_row_that_holds_no_event_fails_and_holds_nobody_up(inbox_database: str) -> None:
    """Somebody wrote it by hand; no attribute of theirs is taken for the outbox's own, or for a replay's."""
    seen: list[Received[Any]] = []
    told: list[Any] = []
    good, bad = emitted(inbox_database, 1, 2)
    asked(inbox_database, "update outbox_events set payload = payload || '{\"version\": 1.5}' where event_id = %s", bad)
    asked(
        inbox_database,
        "update outbox_events set attributes = %s where event_id = %s",
        '{"n": 5, "none": null, "deep": {"a": 1}, "event_type": "forged", "replayed_for": "shipping"}',
        good,
    )
    async with at_work(inbox_database, taking("billing", noting(seen)), told=told):
        await reached(1, seen)

        async def over() -> bool:
            return {each["state"] for each in rows(inbox_database)} == {"done", "failed"}

        await until_async(over, "both are over")

    (received,) = seen
    assert str(received.event_id) == good
    own = {name: received.attributes[name] for name in ("n", "deep", "event_type")}
    assert own == {"n": "5", "deep": '{"a": 1}', "event_type": "order.paid"}
    assert "none" not in received.attributes
    failed = row(inbox_database, UUID(bad))
    assert (failed["outcome"], failed["error_code"], failed["event_version"]) == ("invalid", "UNDECODABLE", 0)
    assert [each.fate for each in told if getattr(each, "fate", None) is Fate.UNDECODABLE] == [Fate.UNDECODABLE]


async def test_every_row_of_a_claim_is_moved_or_none(inbox_database: str) -> None:
    """A statement that marks fewer than were claimed fails, and says so."""
    emitted(inbox_database, 1, 2)
    async with feeding(inbox_database) as feed:
        asked(inbox_database, "create function keep() returns trigger language plpgsql as $$ begin return null; end $$")
        asked(
            inbox_database,
            "create trigger keep before update on outbox_events for each row when (old.id = 2) execute function keep()",
        )
        with pytest.raises(StoreUnavailableError, match="although this transaction holds their locks") as raised:
            await feed.move()
        assert isinstance(raised.value.__cause__, InvariantError)
    assert (count(inbox_database, PENDING), rows(inbox_database)) == (2, [])


async def test_the_tables_may_be_in_schemas_of_their_own(inbox_database: str) -> None:
    """Whatever they are called, and whatever else has an inbox."""
    schema = 'in"box 100%s'
    seen: list[Received[Any]] = []
    with psycopg.connect(inbox_database) as connection:
        connection.execute(sql.SQL("create schema {}").format(sql.Identifier(schema)))
        connection.commit()
        Versions(INBOX).migrate(connection, schema)
    emitted(inbox_database, 1)
    async with at_work(inbox_database, taking("billing", noting(seen)), inbox_schema=schema):
        await reached(1, seen)
    assert rows(inbox_database) == []
    assert b"100%%s" in moving_statement(schema)


async def test_a_relay_beside_it_is_told_of(inbox_database: str) -> None:
    """It goes by what went to a broker lately."""
    told: list[object] = []
    emitted(inbox_database, 1)
    asked(inbox_database, "update outbox_events set published_at = now(), message_id = '4711'")
    async with at_work(inbox_database, taking("billing", noting([])), told=told):
        pass
    (warning,) = [each for each in told if isinstance(each, StartWarning)]
    assert "a relay has sent events of this outbox to a broker" in warning.sentence


async def test_without_an_outbox_it_does_not_start(inbox_database: str) -> None:
    """The sentence names the setting."""
    with pytest.raises(Exception, match="'elsewhere'"):
        async with at_work(inbox_database, taking("billing", noting([])), relay_schema="elsewhere"):
            pass


async def test_a_feed_that_is_closed_can_be_used_again(inbox_database: str) -> None:
    """Its sessions are made when they are needed."""
    async with feeding(inbox_database) as feed:
        emitted(inbox_database, 1)
        assert (await feed.move()).events == 1
        await feed.close()
        emitted(inbox_database, 2)
        assert (await feed.move()).events == 1
    assert isinstance(feed, OutboxFeed)


async def test_the_rights_of_a_relay_and_those_of_the_inbox_are_enough(inbox_database: str) -> None:
    """What docs/migrations.md and `relay grants` give, and nothing more."""
    seen: list[Received[Any]] = []
    page = (ROOT / "docs" / "migrations.md").read_text()
    grants = re.findall(r"^grant .*? to shop_consumers;", page, re.MULTILINE | re.DOTALL)
    with psycopg.connect(inbox_database) as owner:
        for grant in grants:
            owner.execute(grant.replace("shop_consumers", ROLES.name(Role.RELAY)).encode())
    async with at_work(as_relay(inbox_database), taking("billing", noting(seen))):
        emitted(inbox_database, 1)
        await reached(1, seen)
    assert len(grants) == 3


async def test_its_handlers_are_tested_as_all_others(inbox_database: str) -> None:
    """In memory, by events that the test publishes; there they come from no outbox."""
    seen: list[Received[Any]] = []
    async with in_memory(taking("billing", noting(seen)), database=inbox_database) as deliveries:
        event_id = deliveries.publish("order.paid", {"number": 1})
        assert (await deliveries.wait_for(event_id)).fate is Fate.DONE
    assert [each.event_id for each in seen] == [event_id]
