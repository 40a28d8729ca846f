"""The store on a real Redis, over connections that lose answers."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Self, TypeVar
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from redis import Redis as SyncRedis
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from idempotency import Claimed, Done, Manager, Marked, StoreUnavailableError, SyncManager
from relay.dev.stack import Stack

T = TypeVar("T")

SIZE = 65_536


class Proxy:
    """Stands before a Redis, passes on one request at a time, and loses the answer to one that contains some words."""

    def __init__(self, url: str) -> None:
        self._upstream = urlsplit(url)
        self._losing: list[bytes] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.lost: list[bytes] = []

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def url(self) -> str:
        """The URL of the Redis, by way of this proxy."""
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"

    @property
    def password(self) -> str | None:
        """What the Redis asks for."""
        return self._upstream.password

    def lose_answers_to(self, words: str, *, times: int) -> None:
        """Let so many requests with these words through, and close the connection in place of their answers."""
        self._losing = [words.encode()] * times

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        redis, to_redis = await asyncio.open_connection(self._upstream.hostname, self._upstream.port)
        try:
            while request := await client.read(SIZE):
                to_redis.write(request)
                answer = await redis.read(SIZE)
                if self._losing and self._losing[0] in request:
                    self._losing.pop()
                    self.lost.append(answer)
                    return
                to_client.write(answer)
        finally:
            for writer in (to_client, to_redis):
                writer.close()
                await writer.wait_closed()
            self._tasks.discard(task)


def by_host(proxy: Proxy) -> Redis:
    """A client that asks again by itself, as its constructor has it do."""
    return Redis(host="127.0.0.1", port=proxy.port, password=proxy.password)


def by_url(proxy: Proxy) -> Redis:
    """A client with the defaults of `from_url`, which are others."""
    return Redis.from_url(proxy.url)


@pytest.fixture
async def proxy(stack: Stack) -> AsyncIterator[Proxy]:
    """A proxy before the Redis of the stack, which knows the script already."""
    async with Redis.from_url(stack.redis_url) as redis:
        await Manager(redis).check_and_mark_processed("warm-up", uuid4())
    async with Proxy(stack.redis_url) as running:
        yield running


@pytest.mark.parametrize("made", [by_host, by_url])
async def test_an_answer_lost_on_the_way_costs_no_event(proxy: Proxy, made: Callable[[Proxy], Redis]) -> None:
    """Whether the client asks again by itself or not, the delivery that marked the event is the one that acts on it."""
    event_id = uuid4()
    async with made(proxy) as redis:
        manager = Manager(redis)
        proxy.lose_answers_to(str(event_id), times=1)
        assert not await manager.check_and_mark_processed("shipping", event_id)
        assert len(proxy.lost) == 1
        assert await manager.check_and_mark_processed("shipping", event_id)


async def test_an_exception_leaves_the_mark_in_doubt(proxy: Proxy) -> None:
    """At most once, as documented: nobody acts on an event that was marked by a call that failed."""
    event_id = uuid4()
    async with by_url(proxy) as redis:
        manager = Manager(redis, retry_for=timedelta(milliseconds=1))
        proxy.lose_answers_to(str(event_id), times=3)
        with pytest.raises(StoreUnavailableError) as failed:
            await manager.check_and_mark_processed("shipping", event_id)
        assert isinstance(failed.value.__cause__, RedisConnectionError)
        assert len(proxy.lost) == 3
        assert await manager.check_and_mark_processed("shipping", event_id)


@pytest.mark.parametrize("made", [by_host, by_url])
async def test_lost_answers_count_no_attempt_and_end_no_claim(proxy: Proxy, made: Callable[[Proxy], Redis]) -> None:
    """Claimed is claimed once, given back is given back once, completed is completed."""
    event_id = uuid4()
    async with made(proxy) as redis:
        manager = Manager(redis)

        async def losing(call: Awaitable[T]) -> T:
            proxy.lost.clear()
            proxy.lose_answers_to(str(event_id), times=1)
            answer = await call
            assert len(proxy.lost) == 1
            return answer

        for counted, attempt in ((False, 1), (True, 1), (False, 2)):
            claim = await losing(manager.claim("shipping", event_id))
            assert isinstance(claim, Claimed)
            assert claim.attempt == attempt
            await losing(manager.release(await losing(manager.renew(claim)), counted=counted))
        claim = await manager.claim("shipping", event_id)
        assert isinstance(claim, Claimed)
        await losing(manager.complete(claim, b"\x00\xff"))
        assert await losing(manager.claim("shipping", event_id)) == Done(b"\x00\xff")
        await losing(manager.forget("shipping", event_id))
        marked = await losing(manager.mark("shipping", event_id))
        assert isinstance(marked, Marked)
        assert await losing(manager.unmark(marked))


async def test_results_are_bytes_for_clients_that_decode(stack: Stack) -> None:
    """Whatever a client does to what it reads, a result is what it was."""
    async with Redis.from_url(stack.redis_url, decode_responses=True) as redis:
        manager, event_id = Manager(redis), uuid4()
        claim = await manager.claim("shipping", event_id)
        assert isinstance(claim, Claimed)
        await manager.complete(claim, b"\xff\x00")
        assert await manager.claim("shipping", event_id) == Done(b"\xff\x00")


async def test_a_real_server_tells_of_itself(stack: Stack) -> None:
    """Ours keeps nothing on disk and evicts nothing."""
    async with Redis.from_url(stack.redis_url) as redis:
        (advice,) = await Manager(redis).examine(timedelta(days=7))
    with SyncRedis.from_url(stack.redis_url) as sync:
        assert SyncManager(sync).examine(timedelta(days=7)) == [advice]
    assert "keeps nothing on disk" in advice


async def test_of_many_clients_at_once_one_is_first(stack: Stack) -> None:
    """Concurrent deliveries of one event, each on a connection of its own, have one winner."""
    event_id = uuid4()
    async with AsyncExitStack() as clients:
        managers = [Manager(await clients.enter_async_context(Redis.from_url(stack.redis_url))) for _ in range(20)]
        answers = await asyncio.gather(*(each.check_and_mark_processed("billing", event_id) for each in managers))
    assert answers.count(False) == 1


async def test_a_redis_that_forgot_the_script_is_taught_it(stack: Stack) -> None:
    """A restart or a failover empties the server's cache of scripts."""
    async with Redis.from_url(stack.redis_url, decode_responses=True) as redis:
        manager, event_id = Manager(redis, prefix="t", ttl=timedelta(seconds=60)), uuid4()
        answers = []
        for _ in range(2):
            await redis.script_flush()
            answers.append(await manager.check_and_mark_processed("billing", event_id))
        assert answers == [False, True]
        assert 59_000 < await redis.pttl(f"t:evt:processed:billing:{event_id}") <= 60_000
