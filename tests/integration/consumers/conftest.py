"""A consumer that has dead letters, and the desk at which they are dealt with."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from idempotency import Manager
from relay.dev.stack import PROJECT_ID, Stack
from tests.support.dead_letters import DeadLetterDesk, Deceased
from tests.support.pubsub import PubSubSide


@pytest.fixture
async def deceased(stack: Stack, pubsub: PubSubSide) -> AsyncIterator[Deceased]:
    """A consumer on topics of its own."""
    redis = Redis.from_url(stack.redis_url)
    yield Deceased(pubsub, Manager(redis), await pubsub.open(), await pubsub.open(ack_deadline=10))
    await redis.aclose()


@pytest.fixture
def desk(stack: Stack, tmp_path: Path) -> DeadLetterDesk:
    """On the same broker and store."""
    settings = {
        "PUBSUB_EMULATOR_HOST": stack.pubsub_emulator_host,
        "PUBSUB_PROJECT_ID": PROJECT_ID,
        "REDIS_URL": stack.redis_url,
    }
    return DeadLetterDesk(settings, tmp_path)
