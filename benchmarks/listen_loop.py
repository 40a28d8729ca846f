"""What a hand-written relay comes to that is told of every event: `python -m benchmarks.listen_loop TOPIC`.

One connection listens, claims all that waits, publishes it and marks it. There is no failure that it survives. Whoever
stores an event notifies, each time: `TELL_ALWAYS` is the trigger that it needs.
"""

import asyncio
import sys
import time
from collections.abc import Sequence
from typing import Any

import psycopg
from google.pubsub_v1.services.publisher import PublisherAsyncClient
from google.pubsub_v1.types import PublishRequest

from benchmarks.contest import answer, take_part, until_told
from relay.brokers.pubsub_client import PubSubAddress
from relay.settings import load

CHANNEL = "listen_loop"
TELL_ALWAYS = f"""
create function tell_always() returns trigger language plpgsql
as $$ begin perform pg_notify('{CHANNEL}', ''); return null; end $$;
create trigger tell_always after insert on outbox_events for each statement execute function tell_always();
alter table outbox_events disable trigger outbox_events_wake;
"""
TELL_NO_MORE = """
drop function tell_always() cascade;
alter table outbox_events enable trigger outbox_events_wake;
"""

PLANS = "-c enable_seqscan=off -c enable_hashjoin=off -c enable_mergejoin=off"
CLAIM = """
select id, event_id::text, event_type, aggregate_type, aggregate_id, convert_to(payload::text, 'UTF8'),
       to_char(created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
  from outbox_events
 where published_at is null and failed_at is null and ordering_key is null and available_at = '-infinity'
 order by id
   for update
"""
MARK = """
update outbox_events as event
   set published_at = clock_timestamp(), message_id = done.message_id, topic = %s
  from unnest(%s::bigint[], %s::text[]) as done (id, message_id)
 where event.id = done.id
"""
NAMES = ("event_id", "event_type", "aggregate_type", "aggregate_id", "created_at", "sequence")


def request_of(topic: str, rows: Sequence[tuple[Any, ...]]) -> PublishRequest:
    """All rows in one request."""
    request = PublishRequest.pb()(topic=topic)
    for row_id, event_id, event_type, aggregate_type, aggregate_id, body, created_at in rows:
        attributes = request.messages.add(data=body).attributes
        values = (event_id, event_type, aggregate_type, aggregate_id, created_at, str(row_id))
        for name, value in zip(NAMES, values, strict=True):
            attributes[name] = value
    wrapped: PublishRequest = PublishRequest.wrap(request)
    return wrapped


class Loop:
    """Claims and publishes whenever it is told."""

    def __init__(self, connection: psycopg.AsyncConnection[Any], client: PublisherAsyncClient, topic: str) -> None:
        self.acked: dict[str, int] = {}
        self._connection = connection
        self._client = client
        self._topic = topic
        self._told = asyncio.Event()
        connection.add_notify_handler(lambda _: self._told.set())

    async def run(self) -> None:
        """Go on until cancelled."""
        await self._connection.execute(f"listen {CHANNEL}".encode())
        while True:
            self._told.clear()
            await self._batch()
            await self._news()

    async def _news(self) -> None:
        running, socket = asyncio.get_running_loop(), self._connection.fileno()
        while not self._told.is_set():
            arrived = asyncio.Event()
            running.add_reader(socket, arrived.set)
            await arrived.wait()
            running.remove_reader(socket)
            pgconn = self._connection.pgconn
            pgconn.consume_input()
            while pgconn.notifies() is not None:
                self._told.set()

    async def _batch(self) -> None:
        cursor = self._connection.cursor(binary=True)
        async with self._connection.pipeline():
            await self._connection.execute("begin")
            await cursor.execute(CLAIM)
        rows = await cursor.fetchall()
        if rows:
            response = await self._client.publish(request_of(self._topic, rows), retry=None, timeout=15)
            now = time.monotonic_ns()
            self.acked.update((row[4], now) for row in rows)
            marked = (self._topic, [row[0] for row in rows], list(response.message_ids))
            async with self._connection.pipeline():
                await self._connection.execute(MARK, marked)
                await self._connection.execute("commit")
        else:
            await self._connection.execute("commit")


async def main(topic: str) -> None:
    """Take part in a contest: answer with the moment at which the broker had each event, by its number."""
    settings = load()
    address = PubSubAddress(settings.require_project(), emulator=settings.pubsub_emulator_host)
    connecting = psycopg.AsyncConnection.connect(
        settings.require_database(), autocommit=True, prepare_threshold=0, options=PLANS
    )
    async with address.publisher() as client, await connecting as connection:
        take_part()
        loop = Loop(connection, client, address.topic(topic))
        running = asyncio.create_task(loop.run())
        await asyncio.wait({running, asyncio.create_task(asyncio.to_thread(until_told))}, return_when="FIRST_COMPLETED")
        if running.done():
            running.result()
        running.cancel()
        answer(acked=loop.acked)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
