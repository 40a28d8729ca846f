"""The store on a real Redis, over connections that lose answers."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Self
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from idempotency import Manager
from relay.dev.stack import Stack

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
        manager = Manager(redis)
        proxy.lose_answers_to(str(event_id), times=2)
        with pytest.raises(RedisConnectionError):
            await manager.check_and_mark_processed("shipping", event_id)
        assert await manager.check_and_mark_processed("shipping", event_id)


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
