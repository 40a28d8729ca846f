"""The store on a Cluster: an event lies in one slot, a batch in many, and the caller sees neither."""

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from redis.asyncio import RedisCluster
from redis.crc import key_slot

from idempotency import (
    Claimed,
    Done,
    InProgress,
    LockTimeoutError,
    Manager,
    StoreUnavailableError,
    SyncManager,
    connect,
    connect_sync,
)
from tests.support.redis import SLOTS, Cluster, client_of, cluster

pytestmark = pytest.mark.slow("starts a cluster")
MINUTE = timedelta(seconds=60)


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    """Two masters."""
    with cluster() as running:
        yield running


@pytest.fixture
async def manager(nodes: Cluster) -> AsyncIterator[Manager]:
    """A store over both."""
    async with connect(nodes.url) as client:
        assert isinstance(client, RedisCluster)
        yield Manager(client, retry_for=timedelta(milliseconds=200))


async def test_every_call_about_one_event_finds_its_slot(manager: Manager) -> None:
    """Whichever server it lies on."""
    for _ in range(20):
        event = uuid4()
        claim = await manager.claim("billing", event)
        assert isinstance(claim, Claimed)
        assert isinstance(await manager.claim("billing", event), InProgress)
        claim = await manager.renew(claim)
        await manager.release(claim, counted=False)
        again = await manager.claim("billing", event)
        assert isinstance(again, Claimed)
        await manager.complete(again, b"\xff")
        assert await manager.claim("billing", event) == Done(b"\xff")
        assert await manager.check_and_mark_processed("billing", event)
        assert await manager.forget("billing", event)
    async with manager.lock("report"):
        with pytest.raises(LockTimeoutError):
            await manager.lock("report", wait=timedelta(0)).__aenter__()


async def test_a_batch_over_many_slots_has_one_face(manager: Manager, nodes: Cluster) -> None:
    """Each event is answered in the order of the caller, on servers that know none of the scripts too."""
    for node in nodes.nodes:
        with client_of(node) as client:
            client.script_flush()
    events = [uuid4() for _ in range(150)]
    claims: Any = await manager.claim_many("billing", events)
    assert [each.event_id for each in claims] == events
    slots = {key_slot(each.key.encode()) for each in claims}
    assert min(slots) < SLOTS / 2 < max(slots)
    renewed: Any = await manager.renew_many(claims)
    assert all(isinstance(each, Claimed) for each in renewed)
    assert await manager.complete_many(renewed[:100], [str(number) for number in range(100)]) == [None] * 100
    assert await manager.release_many(renewed[100:], rest=MINUTE) == [None] * 50
    answers = await manager.claim_many("billing", events)
    assert answers[:100] == [Done(str(number)) for number in range(100)]
    assert all(isinstance(each, InProgress) for each in answers[100:])
    assert await manager.check_and_mark_many("billing", events[:100]) == [True] * 100


async def test_a_cluster_tells_of_itself(manager: Manager) -> None:
    """Once for all of its servers that are alike."""
    (advice,) = await manager.examine()
    assert "keeps nothing on disk" in advice


def test_it_is_the_same_without_an_event_loop(nodes: Cluster) -> None:
    """One event, a batch, scripts that were forgotten."""
    client = connect_sync(nodes.url)
    try:
        manager = SyncManager(client)
        for node in nodes.nodes:
            with client_of(node) as single:
                single.script_flush()
        events = [uuid4() for _ in range(100)]
        claims: Any = manager.claim_many("billing", events)
        assert [each.event_id for each in claims] == events
        assert manager.complete_many(claims, [b"\xff"] * 100) == [None] * 100
        assert manager.claim("billing", events[0]) == Done(b"\xff")
        assert len(manager.examine()) == 1
    finally:
        client.close()


async def test_a_server_that_is_away_costs_the_events_of_the_others_nothing() -> None:
    """Those that lie on it are answered with the error."""
    with cluster() as nodes:
        async with connect(nodes.url) as client:
            manager = Manager(client, retry_for=timedelta(milliseconds=200))
            claims: Any = await manager.claim_many("billing", [uuid4() for _ in range(40)])
            nodes.nodes[1].stop()
            completed = await manager.complete_many(claims)
            for claim, answer in zip(claims, completed, strict=True):
                here = key_slot(claim.key.encode()) < SLOTS / 2
                assert answer is None if here else isinstance(answer, StoreUnavailableError), (here, answer)
