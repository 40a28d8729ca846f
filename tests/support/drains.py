"""A drain of a large outbox by one relay, and what it read of the indexes."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

import psycopg

from relay.envelope import Message
from relay.kernel.runner import Budget
from relay.outbox.floors import Floors
from relay.outbox.outbox import Outbox
from relay.postgres.connect import connect_async
from relay.publisher.publisher import Publisher
from tests.support.brokers import BrokerInHand
from tests.support.policies import policy
from tests.support.roles_of_tests import as_relay
from tests.support.waiting import until

# One pass takes no longer than that.
SECONDS = 600.0

FILL = """
insert into outbox_events (event_id, event_type, aggregate_type, aggregate_id, ordering_key, payload, available_at)
select id, 'order.paid', 'order', n::text, %(ordering_key)s,
       jsonb_build_object('event_id', id, 'event_type', 'order.paid', 'version', 1, 'occurred_at', now(),
                          'actor', null, 'data', jsonb_build_object('number', n, 'note', repeat('x', 200))),
       %(available_at)s
  from generate_series(1, %(rows)s) as n
 cross join lateral (select outbox_uuid7(clock_timestamp() + n * interval '0') as id) as identity
"""


def fill(url: str, rows: int, available_at: str = "-infinity", ordering_key: str | None = None) -> None:
    """Commit so many events of some 400 bytes."""
    with psycopg.connect(url) as connection:
        connection.execute(FILL, {"rows": rows, "available_at": available_at, "ordering_key": ordering_key})


class EverHungry(BrokerInHand):
    """Takes everything and keeps nothing."""

    async def publish(self, topic: str, messages: Sequence[Message], seconds: float) -> Sequence[str]:
        """Forget the messages."""
        assert (topic, seconds > 0) == ("domain-events", True)
        return ["m"] * len(messages)


@dataclass
class Drain:
    """A relay that publishes batch after batch."""

    url: str
    batch_size: int = 1_000

    def __post_init__(self) -> None:
        self.outbox = Outbox(lambda: connect_async(as_relay(self.url)), "public", 20_000)
        self.publisher = Publisher(self.outbox, EverHungry(), policy(batch_size=self.batch_size), lambda _: None)

    @property
    def floors(self) -> Floors:
        """Where its claims start."""
        return self.outbox.floors

    async def run(self, rows: int | None = None) -> float:
        """Publish so many rows, or until nothing can be published now; answers with the seconds."""
        began = time.monotonic()
        await self.publisher.run_once(Budget(began + SECONDS, time.monotonic, asyncio.Event(), rows))
        return time.monotonic() - began

    async def close(self) -> None:
        """Let go of the outbox; with the connection, the server adds up what was read."""
        await self.publisher.close()


def entries_read(url: str, index: str, updated: int) -> int:
    """How many entries of an index were visited, once every session has told of its updates."""

    def row() -> tuple[int, int]:
        with psycopg.connect(url) as connection:
            found = connection.execute(
                "select table_.n_tup_upd, idx_tup_read from pg_stat_user_indexes as index_ "
                "join pg_stat_user_tables as table_ using (relid) where indexrelname = %s",
                (index,),
            ).fetchone()
        assert found
        return found[0], found[1]

    until(lambda: row()[0] >= updated, "the sessions have told what they did")
    return row()[1]
