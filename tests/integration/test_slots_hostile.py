"""What one batch keeps from another, and must not: a place beside it, its rows, the end of a pass with work left."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self

import psycopg
import pytest

from relay.envelope import Message
from relay.errors import BrokerError
from relay.kernel.backoff import Delay
from relay.kernel.runner import Budget, Next
from relay.outbox.batch import Batch
from relay.outbox.outbox import Outbox
from relay.outbox.rows import Candidates, Claim
from relay.postgres.connect import connect_async
from relay.postgres.wire import BEGIN, COMMIT
from relay.publisher import publisher as road
from relay.publisher.events import SlotsLacking, TopicProbed
from relay.publisher.slots import More, side_by_side
from tests.support.bench import TOPIC, Bench
from tests.support.roles_of_tests import as_relay
from tests.support.waiting import until, until_async

TRANSACTIONS = (
    "select count(*) from pg_stat_activity where datname = current_database() and state = 'idle in transaction'"
)
FREE = "select count(*) from (select from outbox_events where published_at is null for update skip locked) as free"
NOTHING_LEFT = [(0,)]
PATIENCE = 60.0


def hanging() -> bool:
    """All that is under way waits for others."""
    return True


PENDING = "select count(*) from outbox_events where published_at is null"


def out(bench: Bench, number: int) -> Callable[[], Awaitable[bool]]:
    """Whether the broker has an event."""

    async def is_out() -> bool:
        sent = (message for _, messages in bench.broker.requests for message in messages)
        return any(message.attributes["aggregate_id"] == str(number) for message in sent)

    return is_out


class Impatience:
    """How often it was asked whether slots hang, as none of them had ended for long."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.shown = 0
        looking = Outbox.looking

        def asked(outbox: Outbox) -> bool:
            self.shown += 1
            return looking(outbox)

        monkeypatch.setattr(Outbox, "looking", asked)

    async def shows(self, times: int) -> None:
        """Return when it was asked so often again."""
        wanted = self.shown + times

        async def is_shown() -> bool:
            return self.shown >= wanted

        await until_async(is_shown, "nobody has ended for long")


@pytest.fixture
def impatience(monkeypatch: pytest.MonkeyPatch) -> Impatience:
    """Counted."""
    return Impatience(monkeypatch)


class Ticks:
    """A millisecond passes with every look, so that a sweep is due when it is owed, and not because time has passed."""

    now = 1_000.0

    def monotonic(self) -> float:
        """The time."""
        self.now += 0.001
        return self.now


async def test_a_slot_that_has_ended_leaves_its_place_to_another() -> None:
    """Also while the first one, which was there before it, goes on."""
    first: list[asyncio.Task[None] | None] = []
    beside: list[int] = []
    rounds = 0

    async def unit(more: More) -> bool:
        nonlocal rounds
        first.append(asyncio.current_task())
        if first[0] is not first[-1]:
            beside.append(rounds)
            return False
        more()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        rounds += 1
        return rounds < 5

    await side_by_side(2, unit, PATIENCE, hanging)
    assert beside == [0, 1, 2, 3, 4]


async def test_events_that_come_while_a_topic_hangs_do_not_wait_for_it(bench: Bench) -> None:
    """Nobody had asked for a second slot when the first one began; and there is one for each of the others."""
    hung, free = asyncio.Event(), asyncio.Event()
    take = bench.broker.publish

    async def publish(topic: str, messages: Sequence[Message], seconds: float) -> Sequence[str]:
        if topic == "slow-topic":
            hung.set()
            await asyncio.wait_for(free.wait(), PATIENCE)
        return await take(topic, messages, seconds)

    bench.broker.publish = publish  # type: ignore[method-assign]
    bench.emit(1, topic="slow-topic")
    publisher = bench.publisher_on(bench.outbox, batch_size=10, slots=2, poll=Delay(0.01, 0.01, 0))
    running = asyncio.create_task(bench.run_once(publisher))
    await hung.wait()
    for number in range(100, 103):
        bench.emit(number)
        await until_async(out(bench, number), "an event of another topic is out")
    free.set()
    assert (await running).updated == 4


async def test_a_pass_that_is_to_end_begins_nothing_beside_what_hangs(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, impatience: Impatience
) -> None:
    """However long that takes; what has come meanwhile is for the next one."""
    stopping, hung, free = asyncio.Event(), asyncio.Event(), asyncio.Event()
    take, open_ = bench.broker.publish, bench.outbox.batch
    begun = ended = 0

    @asynccontextmanager
    async def counted() -> AsyncIterator[Batch]:
        nonlocal begun, ended
        begun += 1
        async with open_() as batch:
            yield batch
        ended += 1

    async def publish(topic: str, messages: Sequence[Message], seconds: float) -> Sequence[str]:
        hung.set()
        await asyncio.wait_for(free.wait(), PATIENCE)
        return await take(topic, messages, seconds)

    async def only_one_is_left() -> bool:
        return begun - ended == 1

    monkeypatch.setattr(bench.outbox, "batch", counted)
    bench.broker.publish = publish  # type: ignore[method-assign]
    bench.emit(1)
    publisher = bench.publisher_on(bench.outbox, batch_size=10, slots=2, poll=Delay(0.01, 0.01, 0))
    budget = Budget(bench.monotonic() + PATIENCE, bench.monotonic, stopping)
    running = asyncio.create_task(publisher.run_once(budget))
    await hung.wait()
    stopping.set()
    await until_async(only_one_is_left, "what had begun beside it has ended")
    before = begun
    bench.emit(2)
    await impatience.shows(3)
    assert begun == before
    free.set()
    assert (await running).updated == 1


async def test_topics_that_hang_leave_a_slot_to_others(bench: Bench) -> None:
    """However many of them there are: one slot asks them, twenty at a time."""
    hanging = asyncio.Event()
    take = bench.broker.publish

    async def publish(topic: str, messages: Sequence[Message], seconds: float) -> Sequence[str]:
        if topic != TOPIC and hanging.is_set():
            await asyncio.Event().wait()
        return await take(topic, messages, seconds)

    bench.broker.publish = publish  # type: ignore[method-assign]
    bench.broker.refuse = lambda topic: None if topic == TOPIC else BrokerError("UNAVAILABLE", "away")
    publisher = bench.publisher_on(bench.outbox, batch_size=100, slots=2)
    for number in range(45):
        bench.emit(number, topic=f"topic-{number}")
    await bench.run_once(publisher)
    bench.later += 60
    hanging.set()
    bench.emit(100)
    running = asyncio.create_task(bench.run_once(publisher))
    await until_async(out(bench, 100), "the event of the topic that is well is out")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_budget_that_a_probe_has_spent_leaves_work(bench: Bench) -> None:
    """The next pass begins at once, not when something is stored."""
    bench.emit(1, topic="slow-topic")
    publisher = bench.publisher_on(bench.outbox, batch_size=10)
    bench.broker.refuse = lambda topic: BrokerError("NOT_FOUND", "none") if topic == "slow-topic" else None
    await bench.run_once(publisher)
    bench.later += 60
    bench.emit(*range(100, 120))
    take = bench.broker.publish

    async def publish(topic: str, messages: Sequence[Message], seconds: float) -> Sequence[str]:
        bench.later += 100
        return await take(topic, messages, seconds)

    bench.broker.publish = publish  # type: ignore[method-assign]
    report = await bench.run_once(publisher)
    assert (report.updated, report.next) == (0, Next.AGAIN)


async def test_where_there_is_one_connection_batches_follow_each_other(bench: Bench) -> None:
    """A database that takes no further session costs speed, not passes; it is told once a minute."""
    connections: list[psycopg.AsyncConnection[Any]] = []

    async def connect() -> psycopg.AsyncConnection[Any]:
        if any(not connection.closed for connection in connections):
            raise psycopg.OperationalError("too many connections for role")
        connections.append(await connect_async(as_relay(bench.url)))
        return connections[-1]

    bench.emit(*range(100))
    outbox = Outbox(connect, "public", 20_000, monotonic=bench.monotonic)
    publisher = bench.publisher_on(outbox, batch_size=10, slots=3)
    assert (await bench.run_once(publisher)).updated == 100
    bench.emit(*range(100, 200))
    assert (await bench.run_once(publisher)).updated == 100
    assert [str(event.error) for event in bench.seen if isinstance(event, SlotsLacking)] == [
        "too many connections for role"
    ]
    bench.later += 61
    bench.emit(*range(200, 300))
    assert (await bench.run_once(publisher)).updated == 100
    assert sum(isinstance(event, SlotsLacking) for event in bench.seen) == 2
    assert len(connections) == 1
    await publisher.close()


async def test_a_connection_that_is_refused_when_the_work_is_done_fails_no_pass(bench: Bench) -> None:
    """The first slot has ended by then, and its session is free."""
    opened: list[psycopg.AsyncConnection[Any]] = []

    async def first_is_free() -> bool:
        return outbox.has_session

    async def connect() -> psycopg.AsyncConnection[Any]:
        if opened:
            await until_async(first_is_free, "the first slot has ended")
            raise psycopg.OperationalError("too many connections for role")
        opened.append(await connect_async(as_relay(bench.url)))
        return opened[0]

    outbox = Outbox(connect, "public", 20_000, monotonic=bench.monotonic)
    publisher = bench.publisher_on(outbox, batch_size=10, slots=2)
    bench.emit(*range(11))
    assert (await bench.run_once(publisher)).updated == 11
    assert sum(isinstance(event, SlotsLacking) for event in bench.seen) == 1
    await publisher.close()


async def test_while_one_slot_connects_no_other_does(bench: Bench, impatience: Impatience) -> None:
    """A database that does not answer is told of after one attempt, and not after as many as there are slots."""
    attempts = 0

    async def connect() -> psycopg.AsyncConnection[Any]:
        nonlocal attempts
        attempts += 1
        await impatience.shows(3)
        raise psycopg.OperationalError("timeout expired")

    outbox = Outbox(connect, "public", 20_000, monotonic=bench.monotonic)
    publisher = bench.publisher_on(outbox, batch_size=10, slots=3, poll=Delay(0.01, 0.01, 0))
    with pytest.raises(psycopg.OperationalError, match="timeout expired"):
        await bench.run_once(publisher)
    assert attempts == 1
    await publisher.close()


async def test_rows_that_were_waited_for_too_long_are_given_back(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pass is to end: what would be sent by now might not be marked in time."""
    claim = Batch.claim

    async def slow(batch: Batch, *limits: Any) -> Claim:
        found = await claim(batch, *limits)
        bench.later += 20
        return found

    bench.emit(*range(10))
    monkeypatch.setattr(Batch, "claim", slow)
    report = await bench.run_once(seconds=10)
    assert (bench.broker.requests, report.updated, report.next) == ([], 0, Next.AGAIN)
    monkeypatch.setattr(Batch, "claim", claim)
    assert (await bench.run_once()).updated == 10


async def test_a_topic_is_probed_again_in_time_however_long_its_probe_waited(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a lock of the table, or for another transaction's turn."""
    candidates = Batch.candidates

    async def slow(batch: Batch, *place: Any, **how: Any) -> Candidates:
        bench.later += 15
        return await candidates(batch, *place, **how)

    bench.emit(1)
    bench.broker.refuse = lambda _: BrokerError("UNAVAILABLE", "away")
    publisher = bench.publisher_on(bench.outbox, batch_size=10)
    await bench.run_once(publisher)
    bench.later += 60
    monkeypatch.setattr(Batch, "candidates", slow)
    await bench.run_once(publisher, seconds=1)
    (probed,) = [event for event in bench.seen if isinstance(event, TopicProbed)]
    assert probed.probe_in_seconds <= 10.25  # RELAY_OUTAGE_MAX_MS and its jitter


async def test_rows_for_which_a_batch_had_no_room_are_published_in_the_same_pass(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has locked them all the same, and the batch beside it has passed them."""
    monkeypatch.setattr(road, "CLAIM_BYTES", 5_000)
    bench.emit(*range(100))
    report = await bench.run_once(bench.publisher_on(bench.outbox, batch_size=50, slots=2))
    assert bench.query(PENDING) == NOTHING_LEFT, report


@pytest.mark.parametrize("slots", [1, 2])
async def test_the_rows_of_a_key_follow_each_other_while_a_topic_is_open(bench: Bench, slots: int) -> None:
    """A claim that finds nothing, because the one key has had its turn or is in another slot's hand, means no pause."""
    bench.emit(1, topic="slow-topic")
    publisher = bench.publisher_on(bench.outbox, batch_size=10, slots=slots)
    bench.broker.refuse = lambda topic: BrokerError("NOT_FOUND", "no topic") if topic == "slow-topic" else None
    await bench.run_once(publisher)
    bench.emit(*range(100, 400), ordering_key="key")
    assert (await bench.run_once(publisher)).updated == 300


async def test_controls_that_were_not_sent_are_published_in_the_same_pass(bench: Bench) -> None:
    """A batch locks the newest rows as controls, and the one beside it passes them."""
    outbox = Outbox(lambda: connect_async(as_relay(bench.url)), "public", 20_000, monotonic=Ticks().monotonic)
    bench.emit(*range(60))
    take, control_asked, beside_ended = bench.broker.publish, asyncio.Event(), asyncio.Event()

    async def publish(topic: str, messages: Sequence[Message], seconds: float) -> Sequence[str]:
        numbers = [int(message.attributes["aggregate_id"]) for message in messages]
        if min(numbers) < 10:
            raise BrokerError("INTERNAL", "sick")
        if min(numbers) == 10:
            await asyncio.wait_for(control_asked.wait(), 10)
        if numbers == [59]:
            control_asked.set()
            await asyncio.wait_for(beside_ended.wait(), 10)
        return await take(topic, messages, seconds)

    bench.broker.publish = publish  # type: ignore[method-assign]
    publisher = bench.publisher_on(outbox, batch_size=10, slots=2)
    running = asyncio.create_task(bench.run_once(publisher))

    async def one_transaction_is_left() -> bool:
        return control_asked.is_set() and bench.query(TRANSACTIONS) == [(1,)]

    await until_async(one_transaction_is_left, "the batch beside has ended")
    beside_ended.set()
    report = await running
    await publisher.close()
    assert bench.query(PENDING + " and aggregate_id::int >= 10") == NOTHING_LEFT, report


async def test_a_relay_that_freezes_while_it_settles_loses_its_rows(bench: Bench) -> None:
    """Nothing of what it settles is on its way before the commit is, so that the server sees it idle."""
    bench.emit(1, 2, 3)
    outbox = bench.open_outbox(idle_tx_ms=200)

    async def freeze() -> None:
        async with outbox.batch() as batch:
            claim = await batch.claim(10, 10_000_000)
            async with batch.settling():
                batch.mark({TOPIC: [(row, "m") for row in claim.rows]}, [])
                await asyncio.sleep(0.01)  # whatever is sent at once has been sent
                until(lambda: bench.query(FREE) == [(3,)], "the server has taken its rows from it", 10.0)

    with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
        await freeze()
    await outbox.close()


async def test_a_probe_does_not_wait_for_a_batch_that_waits_for_its_session(bench: Bench) -> None:
    """Behind a pooler with one session left, the probe of several topics ends, and then the batch beside it begins."""
    session = asyncio.Semaphore(2)

    class Pooled(psycopg.AsyncCursor[Any]):
        async def execute(self, query: Any, *values: Any, **options: Any) -> Self:
            if query.startswith(BEGIN.encode()):
                await session.acquire()
            done = await super().execute(query, *values, **options)
            if query.endswith(COMMIT.encode()):
                session.release()
            return done

    async def connect() -> psycopg.AsyncConnection[Any]:
        connection = await connect_async(as_relay(bench.url))
        connection.cursor_factory = Pooled
        return connection

    publisher = bench.publisher_on(Outbox(connect, "public", 5_000, monotonic=bench.monotonic), batch_size=10, slots=2)
    bench.emit(*range(100))
    await bench.run_once(publisher)  # it has two connections from now on
    bench.broker.refuse = lambda topic: None if topic == TOPIC else BrokerError("UNAVAILABLE", "away")
    for number in range(5):
        bench.emit(number, topic=f"topic-{number}")
    await bench.run_once(publisher)
    bench.later += 60
    bench.emit(*range(100, 150))
    await session.acquire()
    assert (await bench.run_once(publisher)).updated == 50
    await publisher.close()


async def test_a_connection_that_is_cut_off_at_its_beginning_is_closed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No session is left behind where a pass is cancelled while it connects."""
    asked: asyncio.Queue[psycopg.AsyncConnection[Any]] = asyncio.Queue()

    async def hang(connection: psycopg.AsyncConnection[Any], *_: object) -> None:
        asked.put_nowait(connection)
        await asyncio.Event().wait()

    monkeypatch.setattr(psycopg.AsyncConnection, "execute", hang)
    connecting = asyncio.create_task(connect_async(as_relay(bench.url)))
    connection = await asked.get()
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    assert connection.closed
