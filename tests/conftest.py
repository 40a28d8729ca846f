"""The servers that the tests run on: one embedded stack a session, one database and one topic a test."""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from relay.dev.stack import PROJECT_ID, Stack
from tests.support.audits import Audit
from tests.support.bench import Bench
from tests.support.commands import Commands
from tests.support.postgres import fresh_database, migrated_template
from tests.support.pubsub import Channel, PubSubSide
from tests.support.roles_of_tests import ROLES

# How long an example takes is the machine's: beside other work one that stalls for 0.2 s fails, and not when it is
# tried again. What hangs ends by pytest's own timeout.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    """Postgres, Redis and the Pub/Sub emulator; TEST_DATABASE_URL and TEST_REDIS_URL name others."""
    with Stack.for_tests(os.environ) as running:
        yield running


@pytest.fixture(scope="session")
def template(stack: Stack) -> Iterator[str]:
    """A database with the newest schema, to be copied."""
    with migrated_template(stack.database_url) as name, ROLES.on(stack.database_url, name):
        yield name


@pytest.fixture
def database(stack: Stack, template: str) -> Iterator[str]:
    """The URL of a database with an empty outbox."""
    with fresh_database(stack.database_url, template) as url:
        yield url


@pytest.fixture
def bare_database(stack: Stack) -> Iterator[str]:
    """The URL of a database without an outbox."""
    with fresh_database(stack.database_url) as url:
        yield url


@pytest.fixture
async def pubsub(stack: Stack) -> AsyncIterator[PubSubSide]:
    """The emulator, from a subscriber's side."""
    side = PubSubSide(stack.pubsub_emulator_host)
    yield side
    await side.close()


@pytest.fixture
async def channel(pubsub: PubSubSide) -> Channel:
    """A topic of its own, with a subscription."""
    return await pubsub.open()


@pytest.fixture
def relay(stack: Stack, database: str, channel: Channel, tmp_path: Path) -> Commands:
    """The command line, on this test's database and topic."""
    return Commands(
        {
            "DATABASE_URL": database,
            "PUBSUB_EMULATOR_HOST": stack.pubsub_emulator_host,
            "PUBSUB_PROJECT_ID": PROJECT_ID,
            "RELAY_TOPIC": channel.topic,
        },
        tmp_path,
        ROLES,
    )


@pytest.fixture
def audit(stack: Stack, database: str) -> Audit:
    """The oracle: called with a channel, it empties the subscription and compares what came with the outbox."""
    return Audit(stack.pubsub_emulator_host, database)


@pytest.fixture
async def bench(database: str) -> AsyncIterator[Bench]:
    """A publisher on an empty outbox, a broker in the test's hand, a clock that the test moves."""
    bench = Bench(database)
    yield bench
    await bench.publisher.close()
