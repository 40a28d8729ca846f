"""The pytest plugin: an outbox of its own for every test, on servers that are started when the first test asks.

It is loaded with every run of pytest where the distribution is installed: nothing but names is imported here.
"""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from relay import testing

if TYPE_CHECKING:
    from relay.testing import Outbox, Servers


@pytest.fixture(scope="session")
def outbox_stack() -> "Iterator[Servers]":
    """Embedded Postgres, Redis and Pub/Sub, each started when it is first asked for, gone with the session."""
    with testing.Servers.for_tests(os.environ) as servers:
        yield servers


@pytest.fixture(scope="session")
def outbox_postgres_url(outbox_stack: "Servers") -> str:
    """The URL of a Postgres server whose databases may be created; TEST_DATABASE_URL names another."""
    return outbox_stack.database_url


@pytest.fixture(scope="session")
def outbox_redis_url(outbox_stack: "Servers") -> str:
    """The URL of a Redis; TEST_REDIS_URL names another."""
    return outbox_stack.redis_url


@pytest.fixture(scope="session")
def outbox_pubsub_host(outbox_stack: "Servers") -> str:
    """What PUBSUB_EMULATOR_HOST is set to for an embedded Pub/Sub emulator."""
    return outbox_stack.pubsub_emulator_host


@pytest.fixture(scope="session")
def outbox_template(outbox_postgres_url: str) -> Iterator[str]:
    """The name of a database with the newest schema, which others are copied from."""
    with testing.migrated_template(outbox_postgres_url) as name:
        yield name


@pytest.fixture
def outbox_database(outbox_postgres_url: str, outbox_template: str) -> Iterator[str]:
    """The URL of a database with an empty outbox, this test's own; override it to give one of yours."""
    with testing.fresh_database(outbox_postgres_url, outbox_template) as url:
        yield url


@pytest.fixture
def outbox(outbox_database: str) -> "Outbox":
    """What was emitted to `outbox_database`, and a relay for it in the test's hand."""
    return testing.Outbox(outbox_database)
