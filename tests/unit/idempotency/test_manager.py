"""What the store promises its callers."""

import asyncio
import pickle
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from fakeredis import FakeAsyncRedis, FakeRedis
from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio import RedisCluster

from idempotency import (
    AlreadyDoneError,
    Claimed,
    Done,
    InProgressError,
    InvalidKeyError,
    LockTimeoutError,
    Manager,
    Settings,
    SyncManager,
)


@pytest.fixture
async def redis() -> AsyncIterator[FakeAsyncRedis]:
    """A Redis of this test's own."""
    async with FakeAsyncRedis() as client:
        yield client


async def test_an_event_is_new_once(redis: FakeAsyncRedis) -> None:
    """The first call marks, every later one recognises."""
    manager, event_id = Manager(redis), uuid4()
    assert [await manager.check_and_mark_processed("billing", event_id) for _ in range(3)] == [False, True, True]


async def test_of_many_at_once_one_is_first(redis: FakeAsyncRedis) -> None:
    """Concurrent deliveries of one event have one winner."""
    manager, event_id = Manager(redis), uuid4()
    answers = await asyncio.gather(*(manager.check_and_mark_processed("billing", event_id) for _ in range(20)))
    assert answers.count(False) == 1


async def test_consumers_do_not_share_their_marks(redis: FakeAsyncRedis) -> None:
    """What one consumer has processed is new to another."""
    manager, event_id = Manager(redis), uuid4()
    assert not await manager.check_and_mark_processed("billing", event_id)
    assert not await manager.check_and_mark_processed("mail", event_id)


async def test_the_key_and_its_life_are_the_documented_ones(redis: FakeAsyncRedis) -> None:
    """Other programs read the key `pf:evt:processed:<consumer>:<event_id>`, which lives 720 hours."""
    event_id = uuid4()
    await Manager(redis).check_and_mark_processed("billing", str(event_id).upper())
    assert await redis.ttl(f"pf:evt:processed:billing:{event_id}") == 720 * 3600


@pytest.mark.parametrize(
    ("consumer", "event_id"),
    [("", uuid4()), ("  ", uuid4()), ("billing", UUID(int=0)), ("billing", str(UUID(int=0))), ("billing", "42")],
)
async def test_what_identifies_nothing_is_refused(redis: FakeAsyncRedis, consumer: str, event_id: UUID | str) -> None:
    """An empty consumer, a nil id or no UUID at all would mix events up."""
    with pytest.raises(InvalidKeyError):
        await Manager(redis).check_and_mark_processed(consumer, event_id)
    assert await redis.keys() == []


async def test_a_mark_of_an_earlier_version_is_recognised(redis: FakeAsyncRedis) -> None:
    """Whatever another program has written under the key says that the event was processed."""
    event_id = uuid4()
    await redis.set(f"pf:evt:processed:billing:{event_id}", "1")
    assert await Manager(redis).check_and_mark_processed("billing", event_id)


async def test_prefix_and_life_are_the_callers(redis: FakeAsyncRedis) -> None:
    """Two applications may share a Redis, and a broker may redeliver for longer."""
    event_id = uuid4()
    await Manager(redis, prefix="shop", ttl=timedelta(days=90)).check_and_mark_processed("billing", event_id)
    assert await redis.ttl(f"shop:evt:processed:billing:{event_id}") == 90 * 24 * 3600


async def test_a_mark_is_not_prolonged(redis: FakeAsyncRedis) -> None:
    """Its life is counted from the first delivery, however often the event comes."""
    event_id = uuid4()
    await Manager(redis, ttl=timedelta(hours=1)).check_and_mark_processed("billing", event_id)
    await Manager(redis).check_and_mark_processed("billing", event_id)
    assert await redis.ttl(f"pf:evt:processed:billing:{event_id}") <= 3600


async def test_the_client_of_a_cluster_is_taken() -> None:
    """A mark is one key, so it has one slot."""
    Manager(RedisCluster(host="127.0.0.1"))


@pytest.mark.parametrize("client", ["redis://localhost", None, FakeRedis(), FakeAsyncRedis().pipeline()])
def test_anything_but_an_asynchronous_client_is_refused(client: Any) -> None:
    """When the service starts, not when its first event comes."""
    with pytest.raises(TypeError, match=r"takes a client of redis\.asyncio"):
        Manager(client)


@pytest.mark.parametrize(
    ("ttl", "error"),
    [
        (timedelta(0), ValueError),
        (timedelta(hours=-1), ValueError),
        (timedelta(microseconds=999), ValueError),
        (3600, TypeError),
        (None, TypeError),
    ],
)
async def test_a_life_that_is_none_is_refused(redis: FakeAsyncRedis, ttl: Any, error: type[Exception]) -> None:
    """Marks that are gone at once would recognise nothing."""
    with pytest.raises(error, match="ttl is"):
        Manager(redis, ttl=ttl)


@pytest.mark.parametrize("prefix", ["", " ", "a{b}", None])
async def test_a_prefix_that_names_nothing_is_refused(redis: FakeAsyncRedis, prefix: Any) -> None:
    """When the service starts."""
    with pytest.raises(InvalidKeyError, match="the prefix is"):
        Manager(redis, prefix=prefix)


@pytest.mark.parametrize("name", ["lease", "retry_for", "retry_base", "retry_max"])
async def test_a_time_that_is_none_is_refused(redis: FakeAsyncRedis, name: str) -> None:
    """By its name, in settings and as a keyword."""
    with pytest.raises(ValueError, match=f"{name} is"):
        Manager(redis, **{name: timedelta(0)})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=f"{name} is"):
        Settings(**{name: 60})  # type: ignore[arg-type]


async def test_keywords_go_over_settings(redis: FakeAsyncRedis) -> None:
    """One object for all managers of a service, and what one of them does otherwise."""
    shared = Settings(prefix="shop", lease=timedelta(seconds=5))
    manager = Manager(redis, shared, ttl=timedelta(hours=1))
    assert manager.settings == Settings(prefix="shop", lease=timedelta(seconds=5), ttl=timedelta(hours=1))
    assert Manager(redis).settings == Settings()


@given(result=st.none() | st.binary() | st.text(), fingerprint=st.none() | st.text(min_size=1))
def test_whatever_is_kept_comes_back(result: bytes | str | None, fingerprint: str | None) -> None:
    """Any bytes and any text, beside any fingerprint that is taken."""
    with FakeRedis() as redis:
        manager, event_id = SyncManager(redis), uuid4()
        try:
            claim = manager.claim("billing", event_id, fingerprint=fingerprint)
        except InvalidKeyError:
            return
        assert isinstance(claim, Claimed)
        manager.complete(claim, result)
        assert manager.claim("billing", event_id, fingerprint=fingerprint) == Done(result)
        assert manager.check_and_mark_processed("billing", event_id)


def test_errors_survive_another_process() -> None:
    """What a worker of a pool raises arrives with what it carries."""
    for error in (InProgressError("busy", timedelta(seconds=1)), LockTimeoutError("held", timedelta(seconds=2))):
        again = pickle.loads(pickle.dumps(error))  # noqa: S301 -- our own
        assert (type(again), str(again), again.retry_after) == (type(error), str(error), error.retry_after)
    done = pickle.loads(pickle.dumps(AlreadyDoneError("done", b"result")))  # noqa: S301 -- our own
    assert (str(done), done.result) == ("done", b"result")
