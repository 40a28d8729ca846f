"""The store while servers fail: callers notice a delay, and nothing takes effect twice."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from uuid import uuid4

import pytest
from redis import Redis as SyncRedis
from redis.asyncio import Redis

from idempotency import (
    Claimed,
    Done,
    InProgress,
    Manager,
    StoreUnavailableError,
    SyncManager,
    connect,
    connect_sync,
)
from relay.dev.redis import EmbeddedRedis
from relay.dev.sandbox import Sandbox
from tests.support.proxy import Proxy, proxy_to
from tests.support.redis import MASTER, Pair, client_of, pair, sentinel_over

pytestmark = pytest.mark.slow("starts and kills servers of its own")

PATIENT = timedelta(seconds=30)


@pytest.fixture
def server() -> Iterator[EmbeddedRedis]:
    """A server that the test may stop."""
    with Sandbox() as sandbox:
        running = EmbeddedRedis(sandbox)
        running.start()
        yield running


@pytest.fixture
def servers() -> Iterator[Pair]:
    """A master and its replica."""
    with pair() as both:
        yield both


@pytest.fixture
def proxy(servers: Pair) -> Iterator[Proxy]:
    """A name that leads to the master."""
    with proxy_to("127.0.0.1", servers.master.port) as proxy:
        yield proxy


async def test_a_restart_is_waited_for(server: EmbeddedRedis) -> None:
    """A server that keeps nothing comes back empty: a late completion succeeds, and marks again."""
    async with connect(server.url) as client:
        manager, event = Manager(client, retry_for=PATIENT), uuid4()
        claim = await manager.claim("billing", event)
        assert isinstance(claim, Claimed)
        server.stop()
        completing = asyncio.create_task(manager.complete(claim, "done"))
        await asyncio.to_thread(server.start)
        await completing
        assert await manager.claim("billing", event) == Done("done")


async def test_a_server_that_stays_away_is_given_up(server: EmbeddedRedis) -> None:
    """In time, with the cause, and the URL's password in neither."""
    async with connect(server.url) as client:
        manager = Manager(client, retry_for=timedelta(milliseconds=100))
        server.stop()
        with pytest.raises(StoreUnavailableError) as gone:
            await manager.claim("billing", uuid4())
        assert server.password not in str(gone.value)
        (answer,) = await manager.claim_many("billing", [uuid4()])
        assert isinstance(answer, StoreUnavailableError)
        with pytest.raises(StoreUnavailableError):
            await manager.lock("report").__aenter__()


async def test_a_server_that_is_silent_is_given_up(proxy: Proxy, servers: Pair) -> None:
    """By the client's timeout, and asked once more over another connection."""
    url = f"redis://:{servers.master.password}@{proxy.address}"
    async with connect(url, timeout=timedelta(milliseconds=100)) as client:
        manager = Manager(client, retry_for=timedelta(milliseconds=100))
        assert not await manager.check_and_mark_processed("billing", uuid4())
        proxy.freeze()
        with pytest.raises(StoreUnavailableError, match="Timeout"):
            await manager.check_and_mark_processed("billing", uuid4())


async def test_a_demoted_master_is_left_for_the_new_one(proxy: Proxy, servers: Pair) -> None:
    """The connections stay open and answer READONLY, until they are dropped and the name is asked again."""
    url = f"redis://:{servers.master.password}@{proxy.address}"
    async with connect(url) as client:
        manager, event = Manager(client, retry_for=PATIENT), uuid4()
        claims = await asyncio.gather(*(manager.claim("billing", uuid4()) for _ in range(5)))
        _promote(servers, proxy)
        assert not await manager.check_and_mark_processed("billing", event)
        for claim in claims:
            assert isinstance(claim, Claimed)
            await manager.complete(claim)
        assert await manager.check_and_mark_processed("billing", event)
    with client_of(servers.replica) as there:
        assert there.exists(f"pf:evt:processed:billing:{event}")


def test_a_demoted_master_is_left_without_an_event_loop(proxy: Proxy, servers: Pair) -> None:
    """By the synchronous client as well."""
    client = connect_sync(f"redis://:{servers.master.password}@{proxy.address}")
    assert isinstance(client, SyncRedis)
    with client:
        manager, event = SyncManager(client, retry_for=PATIENT), uuid4()
        claim = manager.claim("billing", event)
        assert isinstance(claim, Claimed)
        _promote(servers, proxy)
        manager.complete(claim)
        assert manager.check_and_mark_processed("billing", event)


async def test_a_sentinel_leads_to_the_new_master(servers: Pair) -> None:
    """What the replica had is still known; what was asked meanwhile is answered once."""
    with sentinel_over(servers) as sentinel:
        url = f"redis+sentinel://:{servers.master.password}@127.0.0.1:{sentinel.port}/{MASTER}"
        async with connect(url, sentinel_password=sentinel.password) as client:
            assert isinstance(client, Redis)
            manager, held, marked = Manager(client, retry_for=PATIENT), uuid4(), uuid4()
            claim = await manager.claim("billing", held)
            assert isinstance(claim, Claimed)
            assert not await manager.check_and_mark_processed("billing", marked)
            assert await client.wait(1, 5_000) == 1
            servers.master.stop()
            assert isinstance(await manager.claim("billing", held), InProgress)
            assert await manager.check_and_mark_processed("billing", marked)
            await manager.complete(claim)
            assert await manager.claim("billing", held) == Done()
        with client_of(servers.replica) as there:
            assert there.info("replication")["role"] == "master"


def _promote(servers: Pair, proxy: Proxy) -> None:
    """Make the replica the master, and the master its replica; new connections lead to the new one."""
    with client_of(servers.replica) as new:
        new.execute_command("REPLICAOF", "NO", "ONE")
    proxy.target = ("127.0.0.1", servers.replica.port)
    with client_of(servers.master) as old:
        old.config_set("masterauth", servers.master.password)
        old.execute_command("REPLICAOF", "127.0.0.1", servers.replica.port)
