"""What happens to deliveries of an inbox where two things happen at once, and where what is said comes too late."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from secrets import token_hex
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import ConnectionPool

from consumers import Consumer, Context, Received
from consumers.clock import SystemClock
from consumers.decode import decode
from consumers.dedup.protocol import InProgress
from consumers.delivery import Delivery
from consumers.events import Fate, ResultUnkept
from consumers.inbox import connections as module
from consumers.inbox.claiming import Claiming
from consumers.inbox.inbox import Inbox
from consumers.inbox.rows import Arrival, Head, Waiting, Word
from consumers.inbox.table import Identity, Table
from consumers.inbox.words import again
from consumers.outcome import Retry
from consumers.sources.source import Share
from consumers.testing import Deliveries, in_memory
from consumers.testing.clock import settle
from relay.postgres.connect import connect_async
from tests.support.inbox import history, leases, row, rows
from tests.support.inbox_rows import store
from tests.support.pooler import Pooler
from tests.support.waiting import until_async

WAITING = "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"


async def holds(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition that need not be awaited."""

    async def asked() -> bool:
        return condition()

    await until_async(asked, what)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[Waiting]:
    """What each look has found, as they come."""
    look, found = Table.look, []

    async def watched(table: Table) -> Waiting:
        found.append(await look(table))
        return found[-1]

    monkeypatch.setattr(Table, "look", watched)
    return found


@pytest.fixture
async def processes(inbox_database: str) -> AsyncIterator[Callable[..., Table]]:
    """As many as a test needs, by what they say to the database."""
    tables: list[Table] = []

    def another(**others: Any) -> Table:
        identity = Identity(consumer="billing", owner=f"test:{len(tables)}", lease_seconds=60.0, **others)
        tables.append(Table(lambda: connect_async(inbox_database), "public", identity))
        return tables[-1]

    yield another
    for table in tables:
        await table.close()


def stored(database: str, data: Any, **columns: Any) -> UUID:
    """Have an event in the inbox that no source brought."""
    event_id = uuid4()
    envelope = {"event_id": str(event_id), "event_type": "order.paid", "version": 1, "actor": None, "data": data}
    with psycopg.connect(database) as connection:
        store(connection, event_id=event_id, envelope={**envelope, "occurred_at": "2026-01-01T00:00:00Z"}, **columns)
    return event_id


def numbered(database: str) -> list[int]:
    """The ids of all deliveries."""
    return [each["id"] for each in rows(database)]


def waiting(database: str) -> int:
    """How many wait for a lock that somebody else has."""
    with psycopg.connect(database) as connection:
        return len(connection.execute(WAITING).fetchall())


async def look_again(deliveries: Deliveries, looks: list[Waiting]) -> None:
    """Move the clock as far as the next looks, and wait for what they lead to."""
    for _ in range(3):
        before = len(looks)
        await deliveries.advance(0.6)
        await holds(lambda: len(looks) > before, "it has looked")  # noqa: B023 -- waited for at once
        await settle()


@asynccontextmanager
async def running(database: str, handler: Any, **options: Any) -> AsyncIterator[Deliveries]:
    """A consumer of orders with an inbox."""
    consumer = Consumer("billing", dedup="inbox", **options)
    consumer.on("order.*")(handler)
    async with in_memory(consumer, database=database) as deliveries:
        yield deliveries


async def test_the_next_of_a_key_does_not_wait_for_a_look(inbox_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although the one before it ends while a walk that has still seen it at work is under way."""
    walk, may_end, seen = Table.walk, asyncio.Event(), asyncio.Event()

    async def slow_walk(table: Table, after: str, most: int) -> list[Head]:
        heads = await walk(table, after, most)
        if any(not head.ready for head in heads) and not may_end.is_set():
            may_end.set()
            await seen.wait()
        return heads

    async def handler(event: Received[Any]) -> None:
        if event.data == 0:
            await may_end.wait()

    monkeypatch.setattr(Table, "walk", slow_walk)
    async with running(inbox_database, handler) as deliveries:
        first, second = (deliveries.publish("order.paid", n, ordering_key="k") for n in range(2))
        assert (await deliveries.wait_for(first)).fate is Fate.DONE
        seen.set()
        assert (await deliveries.wait_for(second)).fate is Fate.DONE


async def test_nothing_begins_beside_a_suspect_that_runs(inbox_database: str, looks: list[Waiting]) -> None:
    """However long it takes: if a neighbour killed the process, the suspect would pay for that."""
    stored(inbox_database, "suspect", suspect=True)
    seen: list[Any] = []
    go_on = asyncio.Event()

    async def handler(event: Received[Any]) -> None:
        seen.append(event.data)
        await go_on.wait()

    async with running(inbox_database, handler) as deliveries:
        await holds(lambda: seen == ["suspect"], "it runs")
        neighbours = [deliveries.publish("order.paid", "neighbour", ordering_key=key) for key in ("", "k")]
        for neighbour in neighbours:
            await holds(lambda: history(inbox_database, neighbour) == ["created"], "it is there")  # noqa: B023 -- the same
        await look_again(deliveries, looks)
        assert seen == ["suspect"]
        go_on.set()
        for neighbour in neighbours:
            assert (await deliveries.wait_for(neighbour)).fate is Fate.DONE


async def test_a_delivery_rests_although_it_was_found_before_it_failed(
    inbox_database: str, processes: Callable[..., Table]
) -> None:
    """Of two processes that have found the same one of a key, the later does not begin its next attempt at once."""
    stored(inbox_database, None, ordering_key="k")
    one, other = processes(), processes()
    (found,) = await one.walk("", 10)
    (claimed,) = await other.claim_heads([found.id])
    assert await other.settle([again(claimed.owned, Retry("away", "AWAY"), counted=True, rest=5.0)]) == ["settled"]
    assert await one.claim_heads([found.id]) == []


async def test_what_is_given_back_while_somebody_has_its_row_comes_again_at_once(
    inbox_database: str, processes: Callable[..., Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As whoever begins to await it has for a moment: it does not rest until its lease ends, and is no suspect then."""
    say, answers = Table.settle, list[str]()

    async def heard(table: Table, words: Sequence[Word]) -> list[str]:
        answers.extend(await say(table, words))
        return answers[-len(words) :]

    monkeypatch.setattr(Table, "settle", heard)
    event = stored(inbox_database, None)
    table, clock = processes(), SystemClock()
    inbox = Inbox(table, clock, lambda _: None, revision_of=lambda *_: 1, heartbeat_seconds=15.0)
    await inbox.open(lambda _: None, None)
    (claimed,) = await table.claim_ready({"order.paid": 1}, 1)
    inbox.hold(claimed.owned)
    with psycopg.connect(inbox_database) as somebody:
        somebody.execute("select from inbox_deliveries for no key update")
        inbox.give_back(claimed.owned, 0.0)
        await holds(lambda: bool(answers), "it was said")
    await holds(lambda: row(inbox_database, event)["state"] == "pending", "it waits")
    await inbox.close()
    found = row(inbox_database, event)
    assert (found["attempt_count"], found["suspect"], leases(inbox_database)) == (0, False, [])


async def test_a_process_that_stood_still_begins_nothing_whose_lease_is_over(
    inbox_database: str, processes: Callable[..., Table]
) -> None:
    """Others have it by then, and would run it at the same time; where nobody has, it is given back."""
    event = stored(inbox_database, None)
    table = processes()
    inbox = Inbox(table, SystemClock(), lambda _: None, revision_of=lambda *_: 1, heartbeat_seconds=15.0)
    await inbox.open(lambda _: None, None)
    (claimed,) = await table.claim_ready({"order.paid": 1}, 1)
    claimed.owned.deadline = SystemClock().monotonic()
    subject = decode(claimed.delivery)
    assert isinstance(subject, Received)
    assert isinstance(await inbox.begin(subject, claimed.delivery), InProgress)
    inbox.give_back(claimed.owned, 0.0)
    await holds(lambda: row(inbox_database, event)["state"] == "pending", "it waits")
    await inbox.close()
    assert row(inbox_database, event)["attempt_count"] == 0


async def test_threads_that_begin_at_once_share_their_connections(
    inbox_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are never more than INBOX_CONNECTIONS, and none is left behind."""
    made: list[ConnectionPool[Any]] = []

    class Pool(ConnectionPool[Any]):
        def __init__(self, *args: Any, **named: Any) -> None:
            made.append(self)
            super().__init__(*args, **named)

    monkeypatch.setattr(module, "ConnectionPool", Pool)
    connections, together = module.Connections(inbox_database, "", 2), threading.Barrier(4, timeout=10)

    def handler() -> None:
        together.wait()
        with connections.transaction_in_thread() as connection:
            connection.execute("select 1")

    try:
        await asyncio.gather(*[asyncio.to_thread(handler) for _ in range(4)])
    finally:
        await connections.close()
        for pool in made:
            pool.close()
    assert len(made) == 1


async def test_a_servers_own_isolation_changes_nothing(inbox_database: str, processes: Callable[..., Table]) -> None:
    """What somebody else has stored meanwhile is a duplicate, and no reason to connect anew."""
    with psycopg.connect(inbox_database, autocommit=True) as connection:
        name = sql.Identifier(connection.info.dbname)
        for setting in ("default_transaction_isolation = 'repeatable read'", "array_nulls = off"):
            connection.execute(sql.SQL("alter database {} set ").format(name) + sql.SQL(setting))
        arrival = Arrival(
            event_id=uuid4(),
            event_type="order.paid",
            version=1,
            sequence=0,
            ordering_key="",
            shard=0,
            message_id="",
            body=b"{}",
            attributes={},
        )
        with psycopg.connect(inbox_database) as somebody:
            store(somebody, event_id=arrival.event_id)
            receiving = asyncio.create_task(processes().receive([arrival]))
            await holds(lambda: waiting(inbox_database) == 1, "it waits for that transaction")
        assert await receiving == set()


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
async def test_a_transaction_that_is_older_than_a_heartbeat_completes(inbox_database: str, level: str) -> None:
    """Its snapshot has the lease as it was; that is left to its end, and then it is gone as any other."""
    snapshot, beat = asyncio.Event(), asyncio.Event()

    async def handler(event: Received[Any], ctx: Context) -> None:
        async with ctx.transaction() as connection:
            await connection.execute(f"set transaction isolation level {level}")
            await connection.execute("select from inbox_history")
            snapshot.set()
            await beat.wait()
            await ctx.complete(connection)

    async with running(inbox_database, handler, timeout=None) as deliveries:
        event = deliveries.publish("order.paid")
        await snapshot.wait()
        (before,) = leases(inbox_database)
        await deliveries.advance(15.1)
        await holds(lambda: leases(inbox_database) != [before], "it is renewed")
        beat.set()
        assert (await deliveries.wait_for(event)).fate is Fate.DONE
        await deliveries.advance(61)
        await holds(lambda: leases(inbox_database) == [], "nothing is left of it")
    assert history(inbox_database, event) == ["created", "processing", "done"]


async def test_behind_a_pooler_a_handlers_transactions_prepare_nothing(inbox_database: str) -> None:
    """The next one may be in another session of the server; on a session of one's own, what is repeated is prepared."""
    parts = conninfo_to_dict(inbox_database)
    pooler = Pooler(str(parts["host"]), int(str(parts["port"])))
    try:
        for url, threshold in (
            (make_conninfo(inbox_database, host="127.0.0.1", port=pooler.port), None),
            (inbox_database, 5),
        ):
            connections = module.Connections(url, "", 1)
            async with connections.transaction() as connection:
                assert connection.prepare_threshold == threshold
            with connections.transaction_in_thread() as in_thread:
                assert in_thread.prepare_threshold == threshold
            await connections.close()
    finally:
        pooler.refuse()


async def test_a_suspect_that_waits_for_its_key_holds_nobody_else_up(inbox_database: str, looks: list[Waiting]) -> None:
    """No process empties itself for what it could not begin."""
    with psycopg.connect(inbox_database) as connection:
        store(connection, ordering_key="k", sequence=1, available_at=datetime.now(UTC) + timedelta(hours=1))
    stored(inbox_database, "suspect", ordering_key="k", sequence=2, suspect=True)
    seen: list[Any] = []
    go_on = asyncio.Event()

    async def handler(event: Received[Any]) -> None:
        seen.append(event.data)
        if event.data == "slow":
            await go_on.wait()

    async with running(inbox_database, handler) as deliveries:
        deliveries.publish("order.paid", "slow")
        await holds(lambda: seen == ["slow"], "it runs")
        await look_again(deliveries, looks)
        fast = deliveries.publish("order.paid", "fast")
        assert (await deliveries.wait_for(fast)).fate is Fate.DONE
        go_on.set()
    assert seen == ["slow", "fast"]


async def test_a_handler_that_does_not_end_holds_up_suspects_alone(inbox_database: str, looks: list[Waiting]) -> None:
    """A process that cannot empty itself for one goes on with all else for a lease's time, and tries again."""
    seen: list[Any] = []
    go_on = asyncio.Event()

    async def handler(event: Received[Any]) -> None:
        seen.append(event.data)
        if event.data == "endless":
            await go_on.wait()

    async with running(inbox_database, handler, timeout=None) as deliveries:
        deliveries.publish("order.paid", "endless")
        await holds(lambda: seen == ["endless"], "it runs")
        suspect = stored(inbox_database, "suspect", suspect=True)
        await look_again(deliveries, looks)
        other = deliveries.publish("order.paid", "other")
        await holds(lambda: len(rows(inbox_database)) == 3, "it is there")
        await look_again(deliveries, looks)
        assert seen == ["endless"]
        await deliveries.advance(60)
        assert (await deliveries.wait_for(other)).fate is Fate.DONE
        go_on.set()
        assert (await deliveries.wait_for(suspect)).fate is Fate.DONE
    assert seen == ["endless", "other", "suspect"]


async def test_a_suspect_of_another_part_is_none_of_ours(processes: Callable[..., Table], inbox_database: str) -> None:
    """It is that process's, and may wait long for it."""
    stored(inbox_database, None, shard=1, suspect=True)
    assert (await processes(shard=0, shards=2).look()).suspects == {}
    assert (await processes(shard=1, shards=2).look()).suspects.keys() == {"order.paid"}


async def test_a_type_that_no_index_takes_becomes_a_dead_letter_and_holds_nobody_up(inbox_database: str) -> None:
    """Postgres does not call that a wrong value, and says it again however often it is asked."""
    seen: list[Any] = []

    async def handler(event: Received[Any]) -> None:
        seen.append(event.data)

    async with running(inbox_database, handler) as deliveries:
        endless = deliveries.publish(f"order.{token_hex(4_000)}", "endless")
        fine = deliveries.publish("order.paid", "fine")
        assert (await deliveries.wait_for(fine)).fate is Fate.DONE
        assert (await deliveries.wait_for(endless)).fate is Fate.UNDECODABLE
        (letter,) = deliveries.dead_letters
    assert "index row size" in letter.reason
    assert seen == ["fine"]


async def test_a_result_that_postgres_refuses_is_left_out_and_nobody_else_pays(inbox_database: str) -> None:
    """Each of those whose ends travel with it is done at its first attempt, and so is it."""
    begun, go_on = list[Any](), asyncio.Event()

    async def handler(event: Received[Any]) -> Any:
        begun.append(event.data)
        await go_on.wait()
        return 10**140_000 if event.data == 3 else event.data

    async with running(inbox_database, handler) as deliveries:
        events = [deliveries.publish("order.paid", n) for n in range(8)]
        await holds(lambda: len(begun) == len(events), "all have begun")
        go_on.set()
        for event in events:
            assert (await deliveries.wait_for(event)).fate is Fate.DONE
        (unkept,) = [each for each in deliveries.events if isinstance(each, ResultUnkept)]
    assert unkept.kind == "int"
    assert [row(inbox_database, event)["result"] for event in events] == [0, 1, 2, None, 4, 5, 6, 7]


@pytest.mark.parametrize("suspect", [False, True], ids=["", "suspect"])
async def test_one_that_comes_late_waits_for_a_claim_that_is_under_way(
    inbox_database: str, processes: Callable[..., Table], *, suspect: bool
) -> None:
    """That claim, of one that it is to go before, has not seen it; and is not seen before it is committed."""
    early = stored(inbox_database, None, ordering_key="k", sequence=2, suspect=suspect)
    table = processes()
    with psycopg.connect(inbox_database) as somebody:
        # Has the claim stand still when it has chosen, and is as if it had never been.
        somebody.execute(
            "insert into inbox_leases (delivery_id, consumer, token, expires_at) "
            "select id, consumer, gen_random_uuid(), now() from inbox_deliveries"
        )
        claim = table.claim_suspect(["order.paid"]) if suspect else table.claim_heads(numbered(inbox_database))
        claiming = asyncio.create_task(claim)
        await holds(lambda: waiting(inbox_database) == 1, "it has chosen")
        stored(inbox_database, None, ordering_key="k", sequence=1)
        other = processes()
        (late,) = await other.walk("", 10)
        assert late.ready
        too = asyncio.create_task(other.claim_heads([late.id]))
        await holds(lambda: too.done() or waiting(inbox_database) == 2, "the other one waits")
        somebody.rollback()
    assert [each.owned.attempt for each in await claiming] == [1]
    assert await too == []
    assert row(inbox_database, early)["state"] == "processing"


@pytest.mark.parametrize("shard_by", [lambda event: event.data["tenant"], lambda event: event.data.get("tenant")])
async def test_an_event_that_shard_by_cannot_place_becomes_a_dead_letter(
    inbox_database: str, shard_by: Callable[[Received[Any]], str]
) -> None:
    """It does not end the consumer, which would receive it first after each start; what comes with it is handled."""

    async def handler(event: Received[Any]) -> None: ...

    async with running(inbox_database, handler, shard_by=shard_by) as deliveries:
        nowhere = deliveries.publish("order.paid", {"note": "of nobody"})
        fine = deliveries.publish("order.paid", {"tenant": "t-1"})
        assert (await deliveries.wait_for(fine)).fate is Fate.DONE
        assert (await deliveries.wait_for(nowhere)).fate is Fate.UNDECODABLE
        (letter,) = deliveries.dead_letters
    assert "shard_by does not say where it belongs" in letter.reason
    assert "of nobody" not in letter.reason


async def test_keys_of_another_part_stand_before_nobody(inbox_database: str, processes: Callable[..., Table]) -> None:
    """However many of them wait for a process that is away."""
    for n in range(30):
        stored(inbox_database, None, ordering_key=f"a-{n:02}", shard=1)
    ours = stored(inbox_database, None, ordering_key="b", shard=0)
    table = processes(shard=0, shards=2)
    inbox = Inbox(table, SystemClock(), lambda _: None, revision_of=lambda *_: 1, heartbeat_seconds=15.0)
    claiming = Claiming(table, inbox, lambda _: None, SystemClock(), poll_seconds=0.05)
    taken: list[Delivery] = []
    working = asyncio.create_task(claiming.run(taken.extend, Room()))
    try:
        await holds(lambda: bool(taken), "ours is claimed")
    finally:
        working.cancel()
        await asyncio.wait([working])
    assert row(inbox_database, ours)["state"] == "processing"


async def test_no_key_takes_the_turn_of_another(inbox_database: str) -> None:
    """However much waits of the first one, and however few permits there are."""
    for n in range(4):
        stored(inbox_database, "a", ordering_key="a", sequence=n)
    stored(inbox_database, "b", ordering_key="b")
    stored(inbox_database, "c", ordering_key="c")
    seen: list[Any] = []

    async def handler(event: Received[Any]) -> None:
        seen.append(event.data)

    async with running(inbox_database, handler, concurrency=1):
        await holds(lambda: len(seen) == 6, "all were handled")
    assert seen == ["a", "b", "c", "a", "a", "a"]


async def test_what_has_no_key_leaves_what_has_one_its_turn(inbox_database: str) -> None:
    """However much of it waits: every other time a key is first."""
    for _ in range(4):
        stored(inbox_database, "plain")
    for n in range(3):
        stored(inbox_database, "keyed", ordering_key=f"k-{n}")
    seen: list[Any] = []

    async def handler(event: Received[Any]) -> None:
        seen.append(event.data)

    async with running(inbox_database, handler, concurrency=1):
        await holds(lambda: len(seen) == 7, "all were handled")
    assert seen == ["plain", "keyed", "plain", "keyed", "plain", "keyed", "plain"]


async def test_what_a_handler_has_left_behind_takes_no_permit(
    inbox_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a timer of its own that cancels the task on which it ran, as the end of the delivery is written."""
    say, tasks = Table.settle, list[asyncio.Task[Any]]()

    async def late(table: Table, words: Sequence[Word]) -> list[str]:
        while tasks:
            tasks.pop().cancel()
            await asyncio.sleep(0)
        return await say(table, words)

    async def handler(event: Received[Any]) -> None:
        task = asyncio.current_task()
        if event.data == "first" and task:
            tasks.append(task)

    monkeypatch.setattr(Table, "settle", late)
    async with running(inbox_database, handler, concurrency=1) as deliveries:
        first = deliveries.publish("order.paid", "first")
        with pytest.raises(AssertionError, match="the SDK itself failed"):
            await deliveries.wait_for(first)
        second = deliveries.publish("order.paid", "second")
        assert (await deliveries.wait_for(second)).fate is Fate.DONE
    assert row(inbox_database, first)["state"] == "done"


class Room:
    """Ten permits, of which none is ever taken."""

    def __init__(self) -> None:
        self.freed = asyncio.Event()
        self.room = 10
        self.idle = True

    def handled(self, event_type: str) -> bool:
        """All are."""
        return bool(event_type)

    def paused(self, event_type: str) -> bool:
        """None is."""
        return not event_type

    def shares(self, event_types: Iterable[str]) -> list[Share]:
        """As many of each."""
        rooms = dict.fromkeys(event_types, self.room)
        return [Share(self.room, rooms)] if rooms else []
