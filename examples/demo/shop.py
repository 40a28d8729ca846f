"""The service that emits: each order and its event are one transaction."""

from dataclasses import dataclass

import psycopg

from relay import Actor, Event, emit_async

ROLLED_BACK_EVERY = 10

TABLES = """
create table orders (id bigint primary key, amount integer not null);
-- Nothing unique about it: an event that is acted on twice ships twice, and shows.
create table shipments (order_id bigint not null);
"""

# Written past outbox_emit, by hand: names that start with goog belong to the broker, which would refuse the message.
POISON = """
insert into outbox_events (event_id, event_type, aggregate_type, aggregate_id, payload, attributes)
select id, 'order.paid', 'order', 'poison', jsonb_build_object('event_id', id, 'event_type', 'order.paid', 'version', 1,
       'occurred_at', now(), 'actor', null, 'data', '{}'::jsonb), '{"goog-trace": "1"}'
  from gen_random_uuid() as id
"""


@dataclass
class Shop:
    """Takes orders on one connection."""

    connection: psycopg.AsyncConnection
    committed: int = 0
    rolled_back: int = 0

    async def open(self) -> None:
        """Create the shop's own tables."""
        await self.connection.execute(TABLES)
        await self.connection.commit()

    async def take(self, number: int) -> None:
        """Take one order; some are given up at the last moment, and their events with them."""
        async with self.connection.transaction():
            await self.connection.execute("insert into orders values (%s, %s)", (number, number * 10))
            await emit_async(
                self.connection,
                Event(
                    event_type="order.paid",
                    aggregate_type="order",
                    aggregate_id=str(number),
                    actor=Actor(type="customer", id=f"c-{number % 97}"),
                    data={"order_id": number, "amount": number * 10},
                ),
            )
            if number % ROLLED_BACK_EVERY == 0:
                self.rolled_back += 1
                raise psycopg.Rollback
        if number % ROLLED_BACK_EVERY:
            self.committed += 1

    async def take_poison(self) -> None:
        """Write the one row that can never become a message."""
        async with self.connection.transaction():
            await self.connection.execute(POISON)
