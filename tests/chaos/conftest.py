"""Servers of the chaos tests' own: they are restarted, exhausted and cut off, which nobody else should notice."""

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from relay.dev.postgres import EmbeddedPostgres
from relay.dev.pubsub import Fault, Requests, requests_of, set_faults
from relay.dev.stack import PROJECT_ID, Part, Stack
from relay.operate.audit import AuditReport
from relay.testing.databases import fresh_database, migrated_template
from tests.support.audits import Audit
from tests.support.chaos import settings
from tests.support.commands import Commands
from tests.support.memory import in_memory
from tests.support.proxy import Proxy, postgres_proxy, proxy_to, through
from tests.support.pubsub import Channel, PubSubSide
from tests.support.roles_of_tests import ROLES

MAX_CONNECTIONS = 20


@dataclass(frozen=True, slots=True)
class Site:
    """A relay's database and topic, and the network to each, of which the test holds both ends."""

    database: str  # past the proxy
    to_postgres: Proxy
    to_broker: Proxy
    broker: str  # past the proxy
    channel: Channel
    relay: Commands
    log: Path

    @property
    def topic(self) -> str:
        """The topic's full name."""
        return f"projects/{PROJECT_ID}/topics/{self.channel.topic}"

    async def fail(self, *faults: Fault) -> None:
        """Put these faults in force, and no others."""
        await set_faults(self.broker, *faults)

    async def requests(self) -> Requests:
        """What came for the topic so far."""
        return await requests_of(self.broker, self.topic)

    async def audit(self) -> AuditReport:
        """Empty the subscription, and compare."""
        return await Audit(self.broker, self.database)(self.channel)


@pytest.fixture(scope="module")
def own_stack() -> Iterator[Stack]:
    """A Postgres with few connections, and a Pub/Sub emulator."""
    settings = {"max_connections": str(MAX_CONNECTIONS), "autovacuum": "off"}
    with ExitStack() as opened:
        with in_memory():
            stack = opened.enter_context(Stack.start([Part.POSTGRES, Part.PUBSUB], postgres_settings=settings))
        yield stack


@pytest.fixture(scope="module")
def own_template(own_stack: Stack) -> Iterator[str]:
    """A database with the newest schema on it."""
    with migrated_template(own_stack.database_url) as name, ROLES.on(own_stack.database_url, name):
        yield name


@pytest.fixture
def postgres(own_stack: Stack) -> EmbeddedPostgres:
    """The Postgres of the site."""
    assert own_stack.postgres
    return own_stack.postgres


@pytest.fixture
async def site(own_stack: Stack, own_template: str, tmp_path: Path) -> AsyncIterator[Site]:
    """A database and a topic of its own, each behind a proxy."""
    broker = own_stack.pubsub_emulator_host
    host, _, port = broker.partition(":")
    side = PubSubSide(broker)
    with (
        fresh_database(own_stack.database_url, own_template) as database,
        postgres_proxy(database) as (to_postgres, _),
        proxy_to(host, int(port)) as to_broker,
    ):
        channel = await side.open()
        relay = Commands(
            {
                "DATABASE_URL": through(to_postgres, database),
                "PUBSUB_EMULATOR_HOST": to_broker.address,
                "PUBSUB_PROJECT_ID": PROJECT_ID,
                "RELAY_TOPIC": channel.topic,
                # Jobs have a chaos of their own.
                "RELAY_RUNNERS": "publish",
                **settings(100),
            },
            tmp_path,
            ROLES,
        )
        yield Site(database, to_postgres, to_broker, broker, channel, relay, tmp_path / "log")
    await side.close()
