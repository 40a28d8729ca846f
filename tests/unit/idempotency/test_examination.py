"""What an operator is told of a Redis before marks are entrusted to it."""

from datetime import timedelta
from typing import Any

import pytest
from fakeredis import FakeAsyncRedis, FakeRedis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoPermissionError, ResponseError

from idempotency import Manager, MemoryManager, SyncManager

GOOD: dict[str, Any] = {
    "memory": {"maxmemory_policy": "noeviction"},
    "persistence": {"aof_enabled": 1},
    "save": {"save": "3600 1"},
}


class Told(FakeAsyncRedis):
    """A client whose server says of itself what the test wants."""

    facts: dict[str, Any]

    async def info(self, section: str | None = None, *_: str, **__: Any) -> Any:
        """INFO."""
        return _or_raise(self.facts[section or ""])

    async def config_get(self, pattern: Any = "*", *_: Any, **__: Any) -> Any:
        """CONFIG GET."""
        return _or_raise(self.facts[pattern])


class SyncTold(FakeRedis):
    """The same, without an event loop."""

    facts: dict[str, Any]

    def info(self, section: str | None = None, *_: str, **__: Any) -> Any:
        """INFO."""
        return _or_raise(self.facts[section or ""])

    def config_get(self, pattern: Any = "*", *_: Any, **__: Any) -> Any:
        """CONFIG GET."""
        return _or_raise(self.facts[pattern])


def _or_raise(fact: Any) -> Any:
    if isinstance(fact, Exception):
        raise fact
    return fact


async def said(facts: dict[str, Any], retention: timedelta | None = None, **settings: Any) -> list[str]:
    """The warnings, which are the same with and without an event loop."""
    async with Told() as redis:
        redis.facts = {**GOOD, **facts}
        found = await Manager(redis, **settings).examine(retention)
    with SyncTold() as sync:
        sync.facts = {**GOOD, **facts}
        assert SyncManager(sync, **settings).examine(retention) == found
    return found


async def test_of_a_good_one_nothing_is_said() -> None:
    """With an append-only file, without eviction, marks that outlive the broker's memory."""
    assert await said({}, timedelta(days=30)) == []


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
async def test_eviction_is_warned_of(policy: str) -> None:
    """Marks have a life, so those policies that spare other keys evict them as well."""
    (warning,) = await said({"memory": {"maxmemory_policy": policy}})
    assert policy in warning
    assert "set maxmemory-policy to noeviction" in warning


@pytest.mark.parametrize(
    "unread", [{}, NoPermissionError("this user has no permissions"), RedisConnectionError("gone")]
)
async def test_a_policy_that_cannot_be_read_is_not_passed_over(unread: Any) -> None:
    """Silence would be taken for consent."""
    (warning,) = await said({"memory": unread})
    assert "could not be read" in warning


async def test_marks_outlive_what_the_broker_keeps() -> None:
    """With both lengths, so that one can be set by the other."""
    (warning,) = await said({}, timedelta(days=31))
    assert "720 h" in warning
    assert "744 h" in warning
    assert await said({}, timedelta(days=31), ttl=timedelta(days=31)) == []
    assert len(await MemoryManager().examine(timedelta(days=31))) == 1
    assert await MemoryManager().examine() == []


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"persistence": {"aof_enabled": 0}}, "only snapshots (save is '3600 1')"),
        ({"persistence": {"aof_enabled": 0}, "save": {b"save": b""}}, "keeps nothing on disk"),
        ({"persistence": {"aof_enabled": 0}, "save": ResponseError("unknown command 'CONFIG'")}, "snapshots could not"),
        ({"persistence": NoPermissionError("no")}, "over a restart could not be read"),
    ],
)
async def test_what_a_restart_forgets_is_said_as_an_advice(facts: dict[str, Any], words: str) -> None:
    """From the append-only file and the snapshots, as far as they can be known."""
    (advice,) = await said(facts)
    assert words in advice
    assert "advice: " in advice
