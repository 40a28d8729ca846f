"""Named locks over the inbox's database, for consumers that have no Redis."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from consumers import Consumer, Context, Received
from consumers.backstage import Backstage
from consumers.clock import Clock, SystemClock
from consumers.events import Fate
from consumers.inbox.locks import InboxLocks
from consumers.inbox.session import Session
from consumers.settings import Settings
from consumers.testing import in_memory
from consumers.testing.clock import FakeClock
from idempotency import InvalidKeyError, LeaseLostError, LockTimeoutError, Store, StoreUnavailableError
from relay.postgres.connect import connect_async
from tests.support.inbox import rows
from tests.support.waiting import until_async

LEASE = timedelta(seconds=6)
NOW = timedelta(0)
LONG = timedelta(hours=1)


def connection_of(database: str) -> Callable[[], Any]:
    """How a session gets its connection."""
    return lambda: connect_async(database)


@asynccontextmanager
async def process(database: str, clock: Clock) -> AsyncIterator[InboxLocks]:
    """The locks as one process has them."""
    skew = clock.monotonic if isinstance(clock, FakeClock) else lambda: 0.0
    locks = InboxLocks(Session(connection_of(database), "public", skew), clock, LEASE, lambda seconds: seconds)
    yield locks
    await locks.close()


@pytest.fixture
def clock() -> FakeClock:
    """Of all processes, and of the database."""
    return FakeClock()


@pytest.fixture
async def here(inbox_database: str, clock: FakeClock) -> AsyncIterator[InboxLocks]:
    """One process."""
    async with process(inbox_database, clock) as locks:
        yield locks


@pytest.fixture
async def there(inbox_database: str, clock: FakeClock) -> AsyncIterator[InboxLocks]:
    """Another one."""
    async with process(inbox_database, clock) as locks:
        yield locks


def names(database: str) -> list[str]:
    """Those in the table."""
    with psycopg.connect(database) as connection:
        return [name for (name,) in connection.execute("select name from inbox_locks")]


async def test_a_name_has_one_holder_over_all_processes(
    here: InboxLocks, there: InboxLocks, inbox_database: str
) -> None:
    """Another name is another lock; what was given back leaves nothing."""
    async with here.lock("sku:1", wait=NOW), there.lock("sku:2", wait=NOW):
        with pytest.raises(LockTimeoutError, match="the lock 'sku:1' is held by somebody else") as raised:
            await there.lock("sku:1", wait=NOW).__aenter__()
        assert NOW < raised.value.retry_after <= LEASE
    async with there.lock("sku:1", wait=NOW):
        pass
    assert names(inbox_database) == []


async def test_who_waits_has_it_when_it_is_free(inbox_database: str) -> None:
    """By the real clock, at once after the other one."""
    async with process(inbox_database, SystemClock()) as here, process(inbox_database, SystemClock()) as there:
        inside = 0

        async def work(locks: InboxLocks) -> None:
            nonlocal inside
            for _ in range(10):
                async with locks.lock("sku:1", wait=LONG):
                    inside += 1
                    assert inside == 1
                    await asyncio.sleep(0)
                    inside -= 1

        await asyncio.gather(work(here), work(there))


async def test_it_is_renewed_for_as_long_as_its_block_takes(
    here: InboxLocks, there: InboxLocks, clock: FakeClock
) -> None:
    """Several leases long."""
    async with here.lock("report", wait=NOW):
        for _ in range(10):
            await renewed(here, clock)
            with pytest.raises(LockTimeoutError):
                await there.lock("report", wait=NOW).__aenter__()


async def renewed(locks: InboxLocks, clock: FakeClock) -> None:
    """A third of a lease goes by, and what is renewed then is: the session answers one after the other."""
    await clock.advance(LEASE.total_seconds() / 3)
    await locks.release("nobody's", "00000000-0000-4000-8000-000000000000")


async def test_a_process_that_died_holds_it_until_its_lease_is_over(
    here: InboxLocks, there: InboxLocks, clock: FakeClock
) -> None:
    """Then whoever asks has it, and the dead one's word counts no longer."""
    token = "3f7b4b7e-0000-4000-8000-000000000000"  # noqa: S105 -- no secret: it names a holder
    held = await here.wait_for("report", token, NOW)
    await clock.advance(LEASE.total_seconds() - 0.5)
    with pytest.raises(LockTimeoutError):
        await there.lock("report", wait=NOW).__aenter__()
    await clock.advance(0.5)
    async with there.lock("report", wait=NOW):
        with pytest.raises(LeaseLostError, match="somebody else took it"):
            await here.renew(held)
        await here.release("report", token)
        with pytest.raises(LockTimeoutError):
            await here.lock("report", wait=NOW).__aenter__()


async def test_a_late_renewal_holds_where_nobody_has_taken_it(here: InboxLocks, clock: FakeClock) -> None:
    """It was never anybody else's."""
    token = "3f7b4b7e-0000-4000-8000-000000000000"  # noqa: S105 -- no secret: it names a holder
    held = await here.wait_for("report", token, NOW)
    await clock.advance(2 * LEASE.total_seconds())
    assert (await here.renew(held)).deadline > held.deadline


async def test_whoever_loses_it_is_cancelled_and_told(
    here: InboxLocks, there: InboxLocks, clock: FakeClock, inbox_database: str
) -> None:
    """The body does not go on as if it were alone."""
    lock = here.lock("report", wait=NOW)

    async def work() -> None:
        async with lock:
            with psycopg.connect(inbox_database) as connection:
                connection.execute("delete from inbox_locks")
            async with there.lock("report", wait=NOW):
                await clock.advance(LEASE.total_seconds() / 3)
                await asyncio.Event().wait()

    with pytest.raises(LeaseLostError):
        await work()
    assert isinstance(lock.lost, LeaseLostError)


async def test_whoever_is_cancelled_as_it_waits_leaves_nothing(
    here: InboxLocks, there: InboxLocks, inbox_database: str
) -> None:
    """Nor does the one that was cancelled inside."""
    async with here.lock("report", wait=NOW):
        waiting = asyncio.create_task(there.lock("report", wait=LONG).__aenter__())
        await there.release("nobody's", "00000000-0000-4000-8000-000000000000")
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
    assert names(inbox_database) == []


async def test_a_database_that_is_away_is_told_of(here: InboxLocks, inbox_database: str) -> None:
    """As a store that is."""
    with psycopg.connect(inbox_database) as connection:
        connection.execute("drop table inbox_locks")
    with pytest.raises(StoreUnavailableError):
        await here.lock("report", wait=NOW).__aenter__()


@pytest.mark.parametrize("name", ["", "  ", "a\0b", "a" * 1_025])
def test_a_name_that_names_nothing_is_refused(name: str) -> None:
    """Everybody's nameless locks would be one."""
    session = Session(connection_of(""), "public", lambda: 0.0)
    locks = InboxLocks(session, SystemClock(), LEASE, lambda seconds: seconds)
    with pytest.raises(InvalidKeyError, match="the name of the lock"):
        locks.lock(name, wait=NOW)


async def test_handlers_have_them_of_either_kind(inbox_database: str) -> None:
    """Coroutines and plain functions, one at a time."""
    inside: list[int] = []
    most: list[int] = []

    async def coroutine(event: Received[Any], ctx: Context) -> None:
        async with ctx.lock("sku:1"):
            inside.append(1)
            most.append(len(inside))
            await asyncio.sleep(0)
            inside.pop()

    def function(event: Received[Any], ctx: Context) -> None:
        with ctx.lock("sku:1"):
            inside.append(1)
            most.append(len(inside))
            inside.pop()

    consumer = Consumer("billing", dedup="inbox")
    consumer.on("order.paid")(coroutine)
    consumer.on("order.sent")(function)
    async with in_memory(consumer, database=inbox_database) as deliveries:
        events = [deliveries.publish(kind) for kind in ("order.paid", "order.sent") * 5]

        async def over() -> bool:
            await deliveries.advance(0.01)
            return {each["state"] for each in rows(inbox_database)} == {"done"} and len(rows(inbox_database)) == 10

        await until_async(over, "all have had their turn")
        assert [(await deliveries.wait_for(event)).fate for event in events] == [Fate.DONE] * 10
    assert most == [1] * 10
    assert names(inbox_database) == []


@pytest.mark.parametrize(("redis_url", "kind"), [("", InboxLocks), ("redis://127.0.0.1:1", Store)])
async def test_a_redis_has_them_where_there_is_one(redis_url: str, kind: type) -> None:
    """So that consumers with an inbox and those without share their locks."""
    settings = Settings.load(
        redis_url=redis_url,
        database_url="postgresql://127.0.0.1:1/none",
        pubsub_project_id="p",
        pubsub_emulator_host="127.0.0.1:1",
    )
    backstage = Backstage(settings, outlived=False)
    outside = backstage.of(Consumer("billing", dedup="inbox"), lambda _: None)
    assert isinstance(outside.locks, kind)
    await backstage.close()
