"""Waiting for what a consumer does, over the tables alone: nobody else runs here but what plays the consumer."""

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import sql

from consumers.errors import ConfigurationError
from consumers.inbox.rows import Awaited
from consumers.inbox.session import statement
from consumers.testing import FakeClock
from consumers.waiting import Failed, Pending, Ready, UnknownDeliveryError, Waiting, enqueue
from consumers.waiting.lookout import Lookout
from consumers.waiting.waiter import Target
from idempotency import StoreUnavailableError
from relay.kernel.clock import Clock
from relay.postgres.connect import connect_async
from relay.postgres.statements import numbers, search_path
from relay.postgres.wire import Wire
from tests.support.inbox_worker import Worker, awaited, holds, sessions
from tests.support.plans import nodes
from tests.support.proxy import postgres_proxy
from tests.support.streams import answered
from tests.support.waiting import until_async


class Counted(Lookout):
    """It counts what it says to the database."""

    statements = 0

    def __init__(self, *connections: Any, **options: Any) -> None:
        super().__init__(*connections, **options)
        self.rows: list[int] = []

    async def _found(self, targets: Sequence[Target]) -> dict[Target, Awaited]:
        self.statements += 1
        self.rows.append(len(targets))
        return await super()._found(targets)


def counted(waiting: Waiting) -> Counted:
    """What is at work for it."""
    assert isinstance(waiting._lookout, Counted)
    return waiting._lookout


@pytest.fixture(autouse=True)
def _counting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("consumers.waiting.waiting.Lookout", Counted)


@pytest.fixture
def worker(inbox_database: str) -> Worker:
    """What plays the consumer."""
    return Worker(inbox_database)


@asynccontextmanager
async def waiting_on(url: str, clock: Clock | None = None, **options: Any) -> AsyncIterator[Waiting]:
    """One that waits, on this clock."""
    async with Waiting(url, clock=clock, app="waiter", **options) as waiting:
        yield waiting


async def end_session(database: str, query: str) -> None:
    """Have the server end these sessions."""
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
        for pid in await sessions(database, query):
            await connection.execute("select pg_terminate_backend(%s)", [pid])


async def test_what_is_done_already_is_ready_at_once(worker: Worker) -> None:
    """With one statement, and without a write."""
    delivery = await worker.ask()
    await worker.do()
    async with waiting_on(worker.database) as waiting:
        assert await waiting.wait(delivery) == Ready({"number": 42})
        assert counted(waiting).statements == 1


async def test_what_ends_meanwhile_wakes_its_waiter_up(worker: Worker) -> None:
    """On a clock that stands still no poll is ever due: the notification alone brings the answer."""
    delivery = await worker.ask()
    async with waiting_on(worker.database, FakeClock()) as waiting:
        answer = asyncio.create_task(waiting.wait(delivery))
        await awaited(worker.database)
        await worker.do()
        async with asyncio.timeout(20):
            assert await answer == Ready({"number": 42})
        assert counted(waiting).statements <= 3  # at first, when it began to listen, and when it was told


async def test_an_event_that_is_not_there_yet_is_waited_for(worker: Worker) -> None:
    """It may be on its way from an outbox; its consumer and its id name it."""
    event_id = uuid4()
    async with waiting_on(worker.database) as waiting:
        answer = asyncio.create_task(waiting.wait(("invoices", event_id), 20))
        await holds(lambda: waiting._lookout is not None and counted(waiting).statements > 0, "a look was made")
        async with await psycopg.AsyncConnection.connect(worker.database) as connection:
            await enqueue(connection, consumer="invoices", event_type="invoice.requested", data=1, event_id=event_id)
        await worker.do()
        assert await answer == Ready({"number": 42})
        assert await waiting.wait(("somebody else", event_id), 0) == Pending(1.0)


async def test_a_failure_says_its_code_and_its_reason(worker: Worker) -> None:
    """Of a dead one, an invalid one, and one that came to another end."""
    delivery = await worker.ask()
    await worker.do(state="failed", what="failed", outcome="dead", result="", code="CARD", error="card 4711 refused")
    other = await worker.ask("invoice-43")
    await worker.do(outcome="discarded", result="")
    skipped = await worker.ask("invoice-44")
    await worker.do(outcome="skipped", result="", error="was sent by hand")
    async with waiting_on(worker.database) as waiting:
        assert await waiting.wait(delivery) == Failed("CARD", "card 4711 refused")
        assert await waiting.wait(other) == Failed("DISCARDED", "")
        assert await waiting.wait(skipped) == Ready(None)


async def test_what_is_not_at_its_end_is_pending(worker: Worker) -> None:
    """With a moment to come again, which is late where its next attempt is."""
    delivery = await worker.ask()
    async with waiting_on(worker.database) as waiting:
        assert await waiting.wait(delivery, 0) == Pending(1.0)
        claimed = await worker.claim()
        assert await waiting.wait(delivery, 0.03) == Pending(1.0)
        await worker.end(claimed, state="pending", what="retry", outcome="", result="", rest=20.0)
        later = await waiting.wait(delivery, 0)
        assert isinstance(later, Pending)
        assert 15 < later.retry_after <= 20


async def test_what_nobody_has_committed_is_unknown(worker: Worker) -> None:
    """Its transaction must have ended before."""
    async with (
        waiting_on(worker.database) as waiting,
        await psycopg.AsyncConnection.connect(worker.database) as connection,
    ):
        stored = await enqueue(connection, consumer="invoices", event_type="invoice.requested", data=1, key="a")
        with pytest.raises(UnknownDeliveryError, match=f"no delivery {stored.delivery}: .* wait after the commit"):
            await waiting.wait(stored)
        await connection.commit()
        assert await waiting.wait(stored, 0) == Pending(1.0)


async def test_a_hundred_who_wait_cost_one_statement_a_look(worker: Worker) -> None:
    """Each for another delivery, beginning at any time; a second of looking by itself takes few statements."""
    deliveries = [await worker.ask(f"invoice-{n}") for n in range(100)]
    clock = FakeClock()
    async with waiting_on(worker.database, clock) as waiting:
        answers = [asyncio.create_task(waiting.wait(delivery, 60)) for delivery in deliveries]
        await awaited(worker.database, 100)
        assert counted(waiting).statements <= 2
        counted(waiting).statements, counted(waiting).rows = 0, []
        for _ in range(40):
            await clock.advance(0.25)
            await holds(lambda: not counted(waiting)._looking, "the look is over")
        # 20, 40, … 640 ms, and from then on once a second.
        assert 10 <= counted(waiting).statements <= 20
        assert set(counted(waiting).rows) == {100}

        counted(waiting).statements = 0
        await worker.do()
        async with asyncio.timeout(20):
            assert await asyncio.gather(*answers) == [Ready({"number": 42})] * 100
        assert counted(waiting).statements <= 50
        assert len(await sessions(worker.database, "%")) == 2


async def test_many_who_wait_for_one_are_all_told(worker: Worker) -> None:
    """And who does not wait any longer is not looked for."""
    delivery = await worker.ask()
    async with waiting_on(worker.database, FakeClock()) as waiting:
        answers = [asyncio.create_task(waiting.wait(delivery)) for _ in range(20)]
        await awaited(worker.database)
        for answer in answers[10:]:
            answer.cancel()
        await asyncio.gather(*answers[10:], return_exceptions=True)
        assert len(counted(waiting).waiters) == 10
        await worker.do()
        async with asyncio.timeout(20):
            assert await asyncio.gather(*answers[:10]) == [Ready({"number": 42})] * 10
        assert (counted(waiting).waiters, counted(waiting)._named) == (set(), {})


async def test_a_transaction_that_completes_it_is_not_waited_for(worker: Worker) -> None:
    """The row is its handler's meanwhile; others are looked for all the same, and its end is found by looking."""
    delivery, other = await worker.ask(), await worker.ask("invoice-43")
    (first, second) = await worker.claim()
    async with waiting_on(worker.database) as waiting:
        async with await psycopg.AsyncConnection.connect(worker.database) as handler:
            await handler.execute(
                "select inbox_complete(jsonb_build_object('id', %s::bigint, 'token', %s::text, 'result', 'booked'))",
                [first.owned.id, first.owned.token],
            )
            answer = asyncio.create_task(waiting.wait(delivery, 20))
            unlocked = asyncio.create_task(waiting.wait(other, 20))
            await awaited(worker.database)
            await worker.end([second])
            assert await unlocked == Ready({"number": 42})
            assert not answer.done()
        assert await answer == Ready("booked")


@pytest.mark.parametrize("moment", ["before", "during"])
async def test_no_end_is_missed_between_two_looks(worker: Worker, moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that ends right after a look that saw it unfinished was awaited by then, and one before it is seen."""
    delivery = await worker.ask()
    claimed = await worker.claim()
    async with waiting_on(worker.database, FakeClock()) as waiting:

        async def ends_meanwhile(targets: Sequence[Target]) -> dict[Target, Awaited]:
            if moment == "before":
                await worker.end(claimed)
            rows = await asked(targets)
            if moment == "during" and claimed:
                await worker.end(claimed)
                claimed.clear()
                # Its notification comes before the answer of the look does.
                await holds(lambda: delivery in counted(waiting)._heard, "it was heard")
            return rows

        other = asyncio.create_task(waiting.wait(await worker.ask("another")))
        await awaited(worker.database)
        asked = counted(waiting)._found
        monkeypatch.setattr(counted(waiting), "_found", ends_meanwhile)
        async with asyncio.timeout(20):
            assert await waiting.wait(delivery) == Ready({"number": 42})
        other.cancel()


async def test_the_end_of_what_listens_is_not_the_end_of_waiting(worker: Worker) -> None:
    """Looking goes on, and soon somebody listens again, and has not missed what ended meanwhile."""
    delivery, later = await worker.ask(), await worker.ask("later")
    async with waiting_on(worker.database) as waiting:
        answer = asyncio.create_task(waiting.wait(delivery, 20))
        last = asyncio.create_task(waiting.wait(later, 20))
        await awaited(worker.database, 2)
        claimed = await worker.claim()
        await end_session(worker.database, "%listen inbox_finished%")
        await worker.end(claimed[:1])
        assert await answer == Ready({"number": 42})
        await awaited(worker.database, 2)
        await worker.end(claimed[1:])
        assert await last == Ready({"number": 42})


async def test_without_notifications_looking_alone_finds_it(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As behind a pooler, which is told once."""

    async def pooled() -> psycopg.AsyncConnection[Any]:
        connection = await connect_async(worker.database)
        connection.prepare_threshold = None
        return connection

    delivery = await worker.ask()
    async with waiting_on(worker.database) as waiting:
        waiting._listen = pooled
        answer = asyncio.create_task(waiting.wait(delivery, 20))
        await holds(lambda: "a pooler between" in caplog.text, "it is told")
        await worker.do()
        assert await answer == Ready({"number": 42})
    assert caplog.text.count("is not woken up") == 1


async def test_a_database_that_is_away_for_a_while_is_waited_for(worker: Worker) -> None:
    """All connections break and none can be made; when it is back, the answer comes."""
    delivery = await worker.ask()
    with postgres_proxy(worker.database) as (proxy, url):
        async with waiting_on(url) as waiting:
            answer = asyncio.create_task(waiting.wait(delivery, 30))
            await awaited(worker.database)
            proxy.refuse()
            failed = counted(waiting).statements
            await holds(lambda: counted(waiting).statements > failed + 2, "it looks in vain")
            with pytest.raises(StoreUnavailableError, match="the inbox was not reached"):
                await waiting.wait(delivery, 0.05)
            await worker.do()
            proxy.reopen()
            assert await answer == Ready({"number": 42})


async def test_who_has_been_told_something_is_pending_when_the_database_goes(worker: Worker) -> None:
    """It is no failure of the work."""
    delivery = await worker.ask()
    with postgres_proxy(worker.database) as (proxy, url):
        async with waiting_on(url) as waiting:
            answer = asyncio.create_task(waiting.wait(delivery, 1.0))
            await awaited(worker.database)
            proxy.refuse()
            assert await answer == Pending(1.0)


async def test_a_database_that_says_nothing_is_not_waited_for_much_longer(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connections stay open, as those to a host that is gone do."""
    monkeypatch.setattr("consumers.waiting.waiting._GRACE_SECONDS", 0.1)
    delivery = await worker.ask()
    with postgres_proxy(worker.database) as (proxy, url):
        async with waiting_on(url) as waiting:
            answer = asyncio.create_task(waiting.wait(delivery, 1.0))
            await awaited(worker.database)
            proxy.freeze()
            with pytest.raises(StoreUnavailableError, match="has not answered in time"):
                await waiting.wait(delivery, 0.5)
            assert await answer == Pending(1.0)


async def test_a_connection_that_is_just_being_made_is_closed_as_well(worker: Worker) -> None:
    """Not only when its remains are collected: until then the server would wait for a password, for a minute."""
    begun, closed = asyncio.Event(), asyncio.Event()

    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        begun.set()
        await reader.read()
        closed.set()

    delivery = await worker.ask()
    gc.disable()
    try:
        async with answered(silent) as port, asyncio.timeout(20):
            url = f"postgresql://nobody@127.0.0.1:{port}/nothing?sslmode=disable"
            async with waiting_on(worker.database, listen_url=url) as waiting:
                assert await waiting.wait(delivery, 0) == Pending(1.0)
                await begun.wait()
            await closed.wait()
    finally:
        gc.enable()


def test_it_works_in_one_event_loop_after_the_other(worker: Worker) -> None:
    """As a service's own does in its tests: closed in between, or else it says so."""
    waiting = Waiting(worker.database)
    delivery = asyncio.run(worker.ask())

    async def ask() -> None:
        async with waiting:
            assert await waiting.wait(delivery, 0) == Pending(1.0)

    for _ in range(2):
        asyncio.run(ask())
    with asyncio.Runner() as runner, asyncio.Runner() as other:
        runner.run(waiting.__aenter__())
        runner.run(waiting.wait(delivery, 0))
        with pytest.raises(RuntimeError, match="at work in another event loop"):
            other.run(waiting.wait(delivery, 0))
        runner.run(waiting.close())


async def test_a_database_without_an_inbox_is_refused_at_once(bare_database: str) -> None:
    """Not when the time is over, and with what to do."""
    async with waiting_on(bare_database) as waiting:
        began = time.monotonic()
        with pytest.raises(ConfigurationError, match=r"cannot be waited for: .* python -m consumers migrate"):
            await waiting.wait(1, 20)
        assert time.monotonic() - began < 10


async def test_who_still_waits_at_the_end_is_let_go(worker: Worker) -> None:
    """With what is known, and no connection stays."""
    delivery = await worker.ask()
    async with waiting_on(worker.database) as waiting:
        answer = asyncio.create_task(waiting.wait(delivery, 30))
        await awaited(worker.database)
    assert await answer == Pending(1.0)
    await until_async(lambda: _none(worker.database), "the connections are closed")
    with pytest.raises(RuntimeError, match="closed"):
        await waiting.wait(delivery)


async def test_a_role_needs_to_read_and_mark_alone(worker: Worker) -> None:
    """Select and update on the deliveries."""
    delivery = await worker.ask()
    role = f"waiter_of_{worker.database.rpartition('/')[2].partition('?')[0]}"
    async with await psycopg.AsyncConnection.connect(worker.database, autocommit=True) as owner:
        await owner.execute(sql.SQL("create role {}").format(sql.Identifier(role)))
        try:
            url = psycopg.conninfo.make_conninfo(worker.database, options=f"-c role={role}")
            async with waiting_on(url) as waiting:
                with pytest.raises(
                    ConfigurationError, match=r"permission denied.*select and update on inbox_deliveries"
                ):
                    await waiting.wait(delivery)
                await owner.execute(
                    sql.SQL("grant select, update on inbox_deliveries to {}").format(sql.Identifier(role))
                )
                assert await waiting.wait(delivery, 0) == Pending(1.0)
        finally:
            await owner.execute(sql.SQL("drop owned by {0}; drop role {0}").format(sql.Identifier(role)))


async def _none(database: str) -> bool:
    return not await sessions(database, "%")


@pytest.mark.parametrize("analysed", [False, True])
async def test_a_look_reads_what_is_asked_for_and_nothing_else(inbox_database: str, analysed: bool) -> None:  # noqa: FBT001 -- a parameter
    """By the indexes alone, however many deliveries there are; a second look writes nothing."""
    async with await connect_async(inbox_database) as connection:
        await connection.execute(
            "insert into inbox_deliveries (consumer, event_id, event_type, envelope) "
            "select 'invoices', lpad(to_hex(n), 32, '0')::uuid, 'invoice.asked', '{}' from generate_series(1, 4000) n"
        )
        if analysed:
            await connection.execute("analyze inbox_deliveries")
        wire = Wire(connection, statement, {"search_path": search_path("public"), "statement_ms": "10000"})
        texts = ["", *["invoices"] * 49, *[""] * 50]
        values = {
            "ids": numbers([0] * 50 + list(range(100, 150))),
            "consumers": "{" + ",".join(f'"{text}"' for text in texts) + "}",
            "event_ids": "{" + ",".join(str(UUID(int=n)) for n in range(1, 101)) + "}",
            "skew": 0.0,
        }
        for written in (True, False):
            execute = wire.call("await_end", values)
            answers = await wire.say(f"explain (analyze, timing off, format json) {execute}")
            (plan,) = answers[-1][0][0]
            scans = [node for node in nodes(plan["Plan"]) if node.get("Relation Name") == "inbox_deliveries"]
            reads = [node for node in scans if node["Node Type"] != "ModifyTable"]
            assert {node["Node Type"] for node in reads} <= {"Index Scan", "Index Only Scan"}
            assert {node["Index Name"] for node in reads} == {"inbox_deliveries_pkey", "inbox_deliveries_unique"}
            assert all(node["Actual Rows"] * node["Actual Loops"] <= 100 for node in reads)
            assert all(node.get("Rows Removed by Filter", 0) * node["Actual Loops"] <= 100 for node in reads)
            found = await connection.execute("select count(*) from inbox_deliveries where awaited")
            assert await found.fetchone() == (99,)
            locked = [node for node in nodes(plan["Plan"]) if node["Node Type"] == "LockRows"]
            assert bool(sum(node["Actual Rows"] * node["Actual Loops"] for node in locked)) == written
