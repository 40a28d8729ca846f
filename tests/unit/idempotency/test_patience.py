"""What a store does while Redis cannot answer."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from fakeredis import FakeAsyncRedis, FakeRedis, FakeServer
from redis.exceptions import (
    AskError,
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    MovedError,
    NoPermissionError,
    ReadOnlyError,
    RedisClusterException,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from idempotency import Claimed, Done, InProgress, Manager, StoreUnavailableError, SyncManager
from tests.support.dedup import FakeTime

PASSING = [
    ReadOnlyError("You can't write against a read only replica."),
    ResponseError("Error running script (call to f_0): @user_script:9: -READONLY You can't write against it."),
    BusyLoadingError("Redis is loading the dataset in memory"),
    MovedError("3999 127.0.0.1:6381"),
    AskError("3999 127.0.0.1:6381"),
    TryAgainError("Multiple keys request during rehashing of slot"),
    ClusterDownError("The cluster is down"),
    MasterDownError("Link with MASTER is down and replica-serve-stale-data is set to 'no'."),
    ResponseError("BUSY Redis is busy running a script."),
    ResponseError("NOREPLICAS Not enough good replicas to write."),
    ResponseError("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk."),
    RedisConnectionError("Connection closed by server."),
    RedisTimeoutError("Timeout reading from socket"),
    RedisClusterException("Redis Cluster cannot be connected."),
]


class Failing(FakeAsyncRedis):
    """A client whose requests fail some times, before they are carried out or after."""

    error: Exception
    times = 0
    afterwards = False

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Fail or ask."""
        if not str(args[0]).startswith("EVAL"):
            return await self._carry_out(*args, **options)
        answer = await self._carry_out(*args, **options) if self.afterwards or self.times <= 0 else None
        self.times -= 1
        if self.times >= 0:
            raise self.error
        return answer

    async def _carry_out(self, *args: Any, **options: Any) -> Any:
        return await super().execute_command(*args, **options)  # type: ignore[no-untyped-call]


class SyncFailing(FakeRedis):
    """The same, without an event loop."""

    error: Exception
    times = 0

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Fail or ask."""
        if str(args[0]).startswith("EVAL"):
            self.times -= 1
            if self.times >= 0:
                raise self.error
        return super().execute_command(*args, **options)  # type: ignore[no-untyped-call]


class Pauses:
    """Sleeps that take no time but the clock's."""

    def __init__(self) -> None:
        self.time = FakeTime()
        self.slept: list[float] = []

    async def __call__(self, seconds: float) -> None:
        """Sleep."""
        self.sync(seconds)

    def sync(self, seconds: float) -> None:
        """Sleep without an event loop."""
        self.slept.append(seconds)
        self.time.now += seconds


def manager_on(redis: Failing, pauses: Pauses, **settings: Any) -> Manager:
    """A store whose pauses are recorded."""
    return Manager(redis, clock=pauses.time, sleep=pauses, chance=lambda: 1.0, **settings)


@pytest.mark.parametrize("error", PASSING, ids=lambda error: str(error)[:30])
async def test_what_passes_is_waited_for(error: Exception) -> None:
    """A failover, a restart, a moving slot: the caller notices a delay."""
    async with Failing() as redis:
        pauses = Pauses()
        manager = manager_on(redis, pauses)
        redis.error, redis.times = error, 4
        assert not await manager.check_and_mark_processed("billing", uuid4())
        assert 0 < sum(pauses.slept) < 1


@pytest.mark.parametrize("error", PASSING, ids=lambda error: str(error)[:30])
async def test_what_does_not_pass_in_time_is_raised(error: Exception) -> None:
    """With the cause, after the bound, and not much later."""
    async with Failing() as redis:
        pauses = Pauses()
        redis.error, redis.times = error, 1_000
        with pytest.raises(StoreUnavailableError, match="could not be asked") as gone:
            await manager_on(redis, pauses).check_and_mark_processed("billing", uuid4())
        assert gone.value.__cause__ is error
        assert 3 < sum(pauses.slept) <= 5


async def test_pauses_double_up_to_the_longest() -> None:
    """With half of each left to chance."""
    async with Failing() as redis:
        pauses = Pauses()
        redis.error, redis.times = RedisConnectionError("gone"), 1_000
        with pytest.raises(StoreUnavailableError):
            await manager_on(redis, pauses).mark("billing", uuid4())
        assert pauses.slept == pytest.approx([0, 0.05, 0.1, 0.2, 0.4, 0.8, 1, 1, 1])
        half, pauses.slept = Manager(redis, clock=pauses.time, sleep=pauses, chance=lambda: 0.0), []
        with pytest.raises(StoreUnavailableError):
            await half.mark("billing", uuid4())
        assert pauses.slept[:4] == pytest.approx([0, 0.025, 0.05, 0.1])


async def test_a_request_that_hangs_is_tried_twice_at_least() -> None:
    """A client's timeout may be as long as our patience."""
    async with Failing() as redis:
        pauses = Pauses()
        redis.error, redis.times = RedisTimeoutError("slow"), 1
        manager = manager_on(redis, pauses, retry_for=timedelta(milliseconds=1))
        assert not await manager.check_and_mark_processed("billing", uuid4())


@pytest.mark.parametrize("error", [NoPermissionError("no"), ResponseError("WRONGTYPE Operation against a key")])
async def test_what_never_passes_is_raised_at_once(error: Exception) -> None:
    """Permissions and foreign values are for a person to mend."""
    async with Failing() as redis:
        pauses = Pauses()
        redis.error, redis.times = error, 1_000
        with pytest.raises(StoreUnavailableError, match="refused") as refused:
            await manager_on(redis, pauses).check_and_mark_processed("billing", uuid4())
        assert refused.value.__cause__ is error
        assert pauses.slept == []


async def test_a_wrong_password_is_not_tried_again() -> None:
    """It locks accounts and stays wrong."""
    async with Failing() as redis:
        pauses = Pauses()
        redis.error, redis.times = AuthenticationError("WRONGPASS invalid username-password pair"), 1_000
        with pytest.raises(StoreUnavailableError, match="WRONGPASS"):
            await manager_on(redis, pauses).check_and_mark_processed("billing", uuid4())
        assert pauses.slept == []


async def test_many_are_told_one_by_one_that_the_store_is_away() -> None:
    """In the same form as everything else that becomes of one event."""
    async with Failing() as redis:
        manager = manager_on(redis, Pauses())
        claims: Any = await manager.claim_many("billing", [uuid4(), uuid4()])
        redis.error, redis.times = RedisConnectionError("gone"), 1_000_000
        for answers in (
            await manager.check_and_mark_many("billing", [uuid4(), uuid4()]),
            await manager.claim_many("billing", [uuid4(), uuid4()]),
            await manager.renew_many(claims),
            await manager.complete_many(claims),
            await manager.release_many(claims),
        ):
            assert [type(each) for each in answers] == [StoreUnavailableError] * 2


async def test_a_server_that_became_a_replica_is_left() -> None:
    """Its connections are dropped, so that the name leads to the new master."""
    async with Failing() as redis:
        dropped: list[bool] = []
        manager = manager_on(redis, Pauses())
        redis.connection_pool.disconnect = _noting(dropped)  # type: ignore[method-assign]
        redis.error, redis.times = ReadOnlyError("READONLY You can't write against a read only replica."), 3
        await manager.check_and_mark_processed("billing", uuid4())
        assert dropped == [False, False]


def _noting(dropped: list[bool]) -> Callable[..., Any]:
    async def disconnect(inuse_connections: bool = True) -> None:  # noqa: FBT001, FBT002 -- the client's own
        dropped.append(inuse_connections)

    return disconnect


@pytest.mark.parametrize("times", [1, 2])
async def test_lost_answers_cost_nothing(times: int) -> None:
    """Each call is told what it did, however often it was carried out."""
    async with Failing() as redis:
        manager = manager_on(redis, Pauses())
        redis.error, redis.afterwards = RedisConnectionError("gone"), True

        def lose() -> None:
            redis.times = times

        event = uuid4()
        lose()
        assert not await manager.check_and_mark_processed("mail", event)
        lose()
        claim = await manager.claim("billing", event)
        assert isinstance(claim, Claimed)
        assert claim.attempt == 1
        lose()
        claim = await manager.renew(claim)
        lose()
        await manager.release(claim, counted=False)
        claim = await manager.claim("billing", event)
        assert isinstance(claim, Claimed)
        assert claim.attempt == 1
        lose()
        await manager.complete(claim, "result")
        assert await manager.claim("billing", event) == Done("result")
        lose()
        async with manager.lock("report"):
            lose()
        many = [uuid4() for _ in range(3)]
        lose()
        claims: Any = await manager.claim_many("billing", [*many, many[0]])
        assert [type(each) for each in claims] == [Claimed, Claimed, Claimed, InProgress]
        assert [each.attempt for each in claims[:3]] == [1, 1, 1]


async def test_a_deadline_counts_from_the_try_that_was_answered() -> None:
    """The server has begun the lease anew with it."""
    async with Failing() as redis:
        pauses = Pauses()
        manager = manager_on(redis, pauses)
        redis.error, redis.times, redis.afterwards = RedisTimeoutError("slow"), 4, True
        began = pauses.time.now
        claim = await manager.claim("billing", uuid4())
        assert isinstance(claim, Claimed)
        assert pauses.time.now > began
        assert claim.deadline == pauses.time.now + 60


async def test_a_server_that_forgot_the_scripts_is_taught_them() -> None:
    """A restart or a failover empties its cache; a batch in parts is taught as well."""
    async with FakeAsyncRedis(server=FakeServer()) as redis:
        manager = Manager(redis)
        for _ in range(2):
            await redis.script_flush()
            assert not await manager.check_and_mark_processed("billing", uuid4())
            await redis.script_flush()
            events = [uuid4() for _ in range(1_500)]
            assert await manager.check_and_mark_many("billing", events) == [False] * 1_500


@pytest.mark.parametrize("error", PASSING, ids=lambda error: str(error)[:30])
def test_it_is_the_same_without_an_event_loop(error: Exception) -> None:
    """Patience, then the error with its cause."""
    pauses = Pauses()
    with SyncFailing() as redis:
        manager = SyncManager(redis, clock=pauses.time, sleep=pauses.sync, chance=lambda: 1.0)
        redis.error, redis.times = error, 3
        assert not manager.check_and_mark_processed("billing", uuid4())
        redis.times = 1_000
        with pytest.raises(StoreUnavailableError) as gone:
            manager.check_and_mark_processed("billing", uuid4())
        assert gone.value.__cause__ is error
        assert [type(each) for each in manager.check_and_mark_many("b", [uuid4()])] == [StoreUnavailableError]


async def test_a_cancelled_call_stops_waiting() -> None:
    """A shutdown does not sit out the patience."""
    async with Failing() as redis:
        time = FakeTime()
        manager = Manager(redis, clock=time, sleep=time.sleep)
        redis.error, redis.times = RedisTimeoutError("slow"), 1_000
        task = asyncio.create_task(manager.claim("billing", uuid4()))
        await time.advance(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
