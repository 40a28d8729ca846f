"""txoutbox: an outbox relay in Python. `python -m benchmarks.peers.txoutbox_drain TOPIC EVENTS`.

Four relays work side by side in one process, each on batches of 1,000, all messages of a batch at once. The events have
no key, so the lock for keys is off. What was published is deleted, which it does faster than marking.
"""

import asyncio
import json
import os
import sys
import time

import asyncpg
import uvloop
from txoutbox import OutboxMessage, Relay, RelayConfig
from txoutbox.adapters.postgres import PostgresStorage

from benchmarks.contest import answer, take_part
from benchmarks.peers.collector import spare_the_collector
from benchmarks.peers.events import bulks
from benchmarks.peers.publisher import Publisher

RELAYS = 4
CONFIG = RelayConfig(batch_size=1_000, concurrency=1_000)
COLUMNS = ("topic", "payload", "headers")


async def main(topic: str, count: int) -> None:
    """Take part in a contest."""
    pool = await asyncpg.create_pool(os.environ["DATABASE_URL"], min_size=RELAYS, max_size=RELAYS)
    storage = PostgresStorage(pool, strict_ordering=False, delete_on_ack=True)
    await storage.create_schema()
    for events in bulks(count):
        rows = [(topic, event.body.encode(), json.dumps(event.attributes)) for event in events]
        await pool.copy_records_to_table(storage.table, records=rows, columns=COLUMNS)
    publisher = Publisher(topic, count)

    async def publish(message: OutboxMessage) -> None:
        await publisher.publish(message.payload, message.headers)

    relays = [Relay(storage, publish, config=CONFIG) for _ in range(RELAYS)]
    spare_the_collector()
    take_part()
    began = time.monotonic()
    running = [asyncio.create_task(relay.run()) for relay in relays]
    seconds = await publisher.everything() - began
    for relay in relays:
        relay.stop()
    await asyncio.gather(*running)
    answer(events=publisher.acknowledged, seconds=seconds)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2])))
