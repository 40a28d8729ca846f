"""The most that this machine allows: the same work by a short loop that does nothing else.

It claims, publishes and marks in one transaction, as the relay does, two batches at a time, over prepared statements
and with protobuf's own messages. There is no failure that it survives.

    python -m benchmarks.limit TOPIC
"""

import asyncio
import sys
import time

import psycopg
from google.pubsub_v1.services.publisher import PublisherAsyncClient
from google.pubsub_v1.types import PublishRequest, PubsubMessage

from benchmarks.contest import answer, take_part
from relay.brokers.pubsub_client import PubSubAddress
from relay.settings import load

BATCH = 1_000
SLOTS = 2
PLANS = "-c enable_seqscan=off -c enable_hashjoin=off -c enable_mergejoin=off"

CLAIM = """
select id, event_id::text, event_type, aggregate_type, aggregate_id, convert_to(payload::text, 'UTF8'),
       to_char(created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
  from outbox_events
 where published_at is null and failed_at is null and ordering_key is null and available_at = '-infinity'
   and id > %s
 order by id
 limit %s
   for update skip locked
"""
MARK = """
update outbox_events as event
   set published_at = clock_timestamp(), message_id = done.message_id, topic = %s
  from unnest(%s::bigint[], %s::text[]) as done (id, message_id)
 where event.id = done.id
"""
Message, Request = PubsubMessage.pb(), PublishRequest.pb()


async def drain(url: str, client: PublisherAsyncClient, topic: str) -> int:
    """Publish until nothing is found."""
    published = floor = 0
    connecting = psycopg.AsyncConnection.connect(url, autocommit=True, prepare_threshold=0, options=PLANS)
    async with await connecting as connection:
        cursor = connection.cursor(binary=True)
        while True:
            async with connection.pipeline():
                await connection.execute("begin")
                await cursor.execute(CLAIM, (floor, BATCH))
            rows = await cursor.fetchall()
            if not rows:
                return published
            messages = [
                Message(
                    data=body,
                    attributes={
                        "event_id": event_id,
                        "event_type": event_type,
                        "aggregate_type": aggregate_type,
                        "aggregate_id": aggregate_id,
                        "created_at": created_at,
                        "sequence": str(row_id),
                    },
                )
                for row_id, event_id, event_type, aggregate_type, aggregate_id, body, created_at in rows
            ]
            request = PublishRequest.wrap(Request(topic=topic, messages=messages))
            response = await client.publish(request, retry=None, timeout=15)
            ids = [row[0] for row in rows]
            async with connection.pipeline():
                await connection.execute(MARK, (topic, ids, list(response.message_ids)))
                await connection.execute("commit")
            published += len(rows)
            floor = ids[-1]


async def main(topic: str) -> None:
    """Take part in a contest."""
    settings = load()
    address = PubSubAddress(settings.require_project(), emulator=settings.pubsub_emulator_host)
    async with address.publisher() as client:
        take_part()
        began = time.monotonic()
        url = settings.require_database()
        done = await asyncio.gather(*(drain(url, client, address.topic(topic)) for _ in range(SLOTS)))
        answer(events=sum(done), seconds=time.monotonic() - began)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
