"""The most that this machine allows: the same work by a short loop that does nothing else.

It claims, publishes and marks in one transaction, as the relay does, three batches at a time, over prepared statements
and with protobuf's own messages. There is no failure that it survives.

    python -m benchmarks.limit TOPIC
"""

import asyncio
import sys
import time
from dataclasses import dataclass, field
from typing import Any

import psycopg
from google.pubsub_v1.services.publisher import PublisherAsyncClient
from google.pubsub_v1.types import PublishRequest

from benchmarks.contest import answer, take_part
from relay.brokers.pubsub_client import PubSubAddress
from relay.settings import load

BATCH = 1_000
SLOTS = 3
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
Request = PublishRequest.pb()


@dataclass
class Claims:
    """Above which id the next claim looks; one slot claims at a time, and finds what the others have not."""

    floor: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


def request_of(topic: str, rows: list[tuple[Any, ...]]) -> PublishRequest:
    """All rows in one request."""
    request = Request(topic=topic)
    for row_id, event_id, event_type, aggregate_type, aggregate_id, body, created_at in rows:
        message = request.messages.add(data=body)
        attributes = message.attributes
        attributes["event_id"] = event_id
        attributes["event_type"] = event_type
        attributes["aggregate_type"] = aggregate_type
        attributes["aggregate_id"] = aggregate_id
        attributes["created_at"] = created_at
        attributes["sequence"] = str(row_id)
    wrapped: PublishRequest = PublishRequest.wrap(request)
    return wrapped


async def drain(url: str, client: PublisherAsyncClient, topic: str, claims: Claims) -> int:
    """Publish until nothing is found."""
    published = 0
    connecting = psycopg.AsyncConnection.connect(url, autocommit=True, prepare_threshold=0, options=PLANS)
    async with await connecting as connection:
        cursor = connection.cursor(binary=True)
        while True:
            async with claims.turn:
                async with connection.pipeline():
                    await connection.execute("begin")
                    await cursor.execute(CLAIM, (claims.floor, BATCH))
                rows = await cursor.fetchall()
                if not rows:
                    return published
                claims.floor = rows[-1][0]
            response = await client.publish(request_of(topic, rows), retry=None, timeout=15)
            ids, message_ids = ",".join(str(row[0]) for row in rows), ",".join(response.message_ids)
            async with connection.pipeline():
                await connection.execute(MARK, (topic, f"{{{ids}}}", f"{{{message_ids}}}"))
                await connection.execute("commit")
            published += len(rows)


async def main(topic: str) -> None:
    """Take part in a contest."""
    settings = load()
    address = PubSubAddress(settings.require_project(), emulator=settings.pubsub_emulator_host)
    async with address.publisher() as client:
        take_part()
        began = time.monotonic()
        url = settings.require_database()
        claims = Claims()
        done = await asyncio.gather(*(drain(url, client, address.topic(topic), claims) for _ in range(SLOTS)))
        answer(events=sum(done), seconds=time.monotonic() - began)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
