"""The stores that the contract of `idempotency` is held against, each with a time that the test moves."""

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

from fakeredis import FakeAsyncRedis, FakeRedis, FakeServer
from redis import Redis as SyncRedis
from redis.asyncio import Redis

from idempotency import Manager, MemoryManager, SyncManager

MEMORY, FAKE, SERVER, SYNC_FAKE, SYNC_SERVER = "memory", "fakeredis", "server", "sync-fakeredis", "sync-server"
KINDS = [MEMORY, FAKE, SERVER, SYNC_FAKE, SYNC_SERVER]
_STEPS = 20


class FakeTime:
    """A clock that a test moves, and sleeps that end by it."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def __call__(self) -> float:
        """Read the clock."""
        return self.now

    async def sleep(self, seconds: float) -> None:
        """Sleep until the clock has been moved so far."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.now + seconds, woken))
        await woken

    async def advance(self, seconds: float) -> None:
        """Move the clock, wake whom it is time for, and let them run."""
        self.now += seconds
        for until, woken in self._sleepers:
            if until <= self.now and not woken.done():
                woken.set_result(None)
        self._sleepers = [each for each in self._sleepers if not each[1].done()]
        for _ in range(_STEPS):
            await asyncio.sleep(0)


class World:
    """A store, what it has written, and its time."""

    def __init__(self, store: Any, prefix: str, clock: "MovedClock", redis: Any = None) -> None:
        self.store = store
        self.prefix = prefix
        self.clock = clock
        self.redis = redis

    async def advance(self, by: timedelta) -> None:
        """Let time pass, for the store's clock and for what has been written: a server's own clock cannot be moved."""
        self.clock.offset += by.total_seconds()
        for key in await self.keys() if self.redis else []:
            left = await self.redis.pttl(key) - by // timedelta(milliseconds=1)
            await (self.redis.pexpire(key, left) if left > 0 else self.redis.delete(key))

    async def keys(self) -> list[str]:
        """The names of all that is there."""
        if self.redis is None:
            found: dict[str, Any] = self.store._simulation._values
            return [key for key, (_, until) in found.items() if until > self.clock()]
        return [key.decode() async for key in self.redis.scan_iter(f"{self.prefix}:*")]

    async def put(self, key: str, value: str) -> None:
        """Write what another program might have written."""
        if self.redis is None:
            self.store._simulation._set(key, value.encode(), 60_000)
        else:
            await self.redis.set(key, value)


class MovedClock:
    """The monotonic clock, put forward by a test."""

    def __init__(self) -> None:
        self.offset = 0.0

    def __call__(self) -> float:
        """Read the clock."""
        return time.monotonic() + self.offset


class Awaited:
    """A SyncManager with the face of a Manager, so that one suite holds for both."""

    def __init__(self, manager: SyncManager) -> None:
        self.manager = manager

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.manager, name)
        if name in {"once", "lock"}:
            return lambda *args, **kwargs: _AwaitedContext(found(*args, **kwargs))
        return _awaited(found) if callable(found) else found


class _AwaitedContext:
    def __init__(self, context: Any) -> None:
        self._context = context

    async def __aenter__(self) -> Any:
        return self._context.__enter__()

    async def __aexit__(self, *error: object) -> Any:
        return self._context.__exit__(*error)


def _awaited(function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    @functools.wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


@asynccontextmanager
async def world_of(kind: str, redis_url: Callable[[], str], **settings: Any) -> AsyncIterator[World]:
    """A store of a kind, with nothing in it."""
    prefix, clock = f"t-{uuid4().hex}", MovedClock()
    if kind == MEMORY:
        yield World(MemoryManager(prefix=prefix, clock=clock, **settings), prefix, clock)
        return
    server = FakeServer()
    fake = kind in {FAKE, SYNC_FAKE}
    async with FakeAsyncRedis(server=server) if fake else Redis.from_url(redis_url()) as redis:
        if kind in {FAKE, SERVER}:
            yield World(Manager(redis, prefix=prefix, clock=clock, **settings), prefix, clock, redis)
            return
        with FakeRedis(server=server) if fake else SyncRedis.from_url(redis_url()) as sync:
            yield World(Awaited(SyncManager(sync, prefix=prefix, clock=clock, **settings)), prefix, clock, redis)
