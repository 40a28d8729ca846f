"""Bulk emits of many keys at once: the locks of a server are few, and no number of keys uses them up."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg import errors as pg

from relay.dev.stack import Part, Stack
from relay.testing.databases import fresh_database, migrated_template
from tests.support.chaos import sized
from tests.support.outbox import count
from tests.support.roles_of_tests import ROLES, as_emitter

CONNECTIONS, WRITERS, KEYS = sized(20, 200), sized(12, 100), sized(1_000, 10_000)
EMIT = """
select count(*)
  from outbox_emit((select jsonb_agg(jsonb_build_object(
                               'event_type', 'order.paid', 'aggregate_type', 'order', 'aggregate_id', n::text,
                               'data', n, 'ordering_key', format('%%s-%%s', %(writer)s::integer, n)))
                      from generate_series(1, %(keys)s) as n))
"""


@pytest.fixture
def database() -> Iterator[str]:
    """An outbox on a server of its own, with so many connections and the locks that come with them."""
    settings = {"max_connections": str(CONNECTIONS)}
    with (
        Stack.start([Part.POSTGRES], postgres_settings=settings) as stack,
        migrated_template(stack.database_url) as template,
        ROLES.on(stack.database_url, template),
        fresh_database(stack.database_url, template) as url,
    ):
        yield url


@pytest.mark.timeout(900)
def test_bulk_emits_of_many_keys_at_once_all_commit(database: str) -> None:
    """1,024 buckets are all that they lock together; a lock for each key would be more than the server has."""
    with psycopg.connect(database) as connection, pytest.raises(pg.OutOfMemory, match="shared memory"):
        # What the buckets are there for: as many locks as there are keys.
        connection.execute("select pg_advisory_xact_lock(1, n) from generate_series(1, 1000000) as n")
    together = threading.Barrier(WRITERS)

    def write(writer: int) -> int:
        with psycopg.connect(as_emitter(database)) as connection:
            together.wait(60)
            row = connection.execute(EMIT, {"writer": writer, "keys": KEYS}).fetchone()
        return int(row[0]) if row else 0

    with ThreadPoolExecutor(WRITERS) as threads:
        assert list(threads.map(write, range(WRITERS))) == [KEYS] * WRITERS
    assert count(database) == WRITERS * KEYS
