"""What the tests run on: an embedded stack for each process; an empty database and a topic for each test."""

import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from psycopg.conninfo import conninfo_to_dict

from consumers.inbox.schema import INBOX
from relay.dev.stack import PROJECT_ID, Stack
from relay.postgres.schema import Versions
from relay.testing import Servers, fresh_database
from tests.support.audits import Audit
from tests.support.bench import Bench
from tests.support.commands import Commands
from tests.support.databases import Databases, databases
from tests.support.looking import stop_looking
from tests.support.memory import in_memory
from tests.support.pubsub import Channel, PubSubSide
from tests.support.roles_of_tests import ROLES

# The fixtures of those who emit are ours too.
pytest_plugins = [
    "relay.testing.plugin",
    "tests.plugins.environment",
    "tests.plugins.order",
    "tests.plugins.side_by_side",
    "tests.plugins.durations",
    "tests.plugins.garbage",
    "tests.plugins.endless",
]

# How long an example takes is the machine's: beside other work one that stalls for 0.2 s fails, and not when it is
# tried again. What hangs ends by pytest's own timeout.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


def pytest_configure() -> None:
    """Hear Ctrl-C, and have each process that a test starts hear it.

    What a shell starts in the background, as a script does with `&`, ignores it, and so do all of its children.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def outbox_postgres_url(outbox_stack: Servers) -> str:
    """A Postgres in memory."""
    with in_memory():
        return outbox_stack.database_url


@pytest.fixture(scope="session")
def stack(outbox_stack: Servers) -> Stack:
    """All servers, started side by side."""
    with in_memory():
        return outbox_stack.stack()


@pytest.fixture(scope="session")
def outbox_template(outbox_template: str, outbox_postgres_url: str) -> Iterator[str]:
    """A database with the newest schema, to be copied; what stands for somebody has that one's rights in it."""
    with ROLES.on(outbox_postgres_url, outbox_template):
        yield outbox_template


@pytest.fixture(scope="session")
def template(outbox_template: str) -> str:
    """The same, by a shorter name."""
    return outbox_template


@pytest.fixture(scope="session")
def outbox_databases(outbox_postgres_url: str, outbox_template: str) -> Iterator[Databases]:
    """Databases with an outbox, handed on from test to test."""
    with databases(outbox_postgres_url, outbox_template) as made:
        yield made


@pytest.fixture
def outbox_database(outbox_databases: Databases) -> Iterator[str]:
    """The URL of a database with an empty outbox."""
    with outbox_databases.handed() as url:
        yield url


@pytest.fixture
def database(outbox_database: str) -> str:
    """The same, by a shorter name."""
    return outbox_database


@pytest.fixture(scope="session")
def inbox_template(outbox_template: str, outbox_postgres_url: str) -> Iterator[str]:
    with fresh_database(outbox_postgres_url, outbox_template) as url:
        with psycopg.connect(url) as connection:
            Versions(INBOX).migrate(connection, "public")
        yield str(conninfo_to_dict(url)["dbname"])


@pytest.fixture(scope="session")
def inbox_databases(outbox_postgres_url: str, inbox_template: str) -> Iterator[Databases]:
    """The same with an inbox."""
    with databases(outbox_postgres_url, inbox_template) as made:
        yield made


@pytest.fixture
def inbox_database(inbox_databases: Databases) -> Iterator[str]:
    """The URL of a database with an empty outbox and an empty inbox."""
    with inbox_databases.handed() as url:
        yield url


@pytest.fixture
def bare_database(outbox_postgres_url: str) -> Iterator[str]:
    """The URL of a database without an outbox."""
    with fresh_database(outbox_postgres_url) as url:
        yield url


@pytest.fixture(autouse=True)
def _looks_end() -> Iterator[None]:
    """End the test's own sessions on its databases."""
    yield
    stop_looking()


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
            # Jobs have tests of their own: one at work would be in each log and each report.
            "RELAY_RUNNERS": "publish",
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
    """A publisher on an empty outbox, a broker in the test's hand, a clock that the test may move or stop."""
    bench = Bench(database)
    yield bench
    await bench.publisher.close()
