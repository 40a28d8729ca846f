"""faststream-outbox: an outbox for FastStream, in Python.

    python -m benchmarks.peers.faststream_outbox_drain TOPIC EVENTS

A worker handles one event and holds a connection, so that there are as many workers as Postgres' default of 100
connections has room for. They fetch 1,000 rows at once and delete what they have published in batches. The handler is
given the message as it is: neither its body is decoded nor its arguments are checked, and no line is logged for it.
"""

import os
import sys
import time

import uvloop
from faststream_outbox import OutboxBroker, make_outbox_table
from faststream_outbox.message import OutboxMessage
from sqlalchemy import MetaData, insert
from sqlalchemy.ext.asyncio import create_async_engine

from benchmarks.contest import answer, take_part
from benchmarks.peers.events import bulks
from benchmarks.peers.publisher import Publisher

QUEUE = "events"
WORKERS = 48
FLUSH = 200


async def whole(message: OutboxMessage) -> OutboxMessage:
    """Decode nothing."""
    return message


async def main(topic: str, count: int) -> None:
    """Take part in a contest."""
    engine = create_async_engine(f"postgresql+asyncpg{os.environ['DATABASE_URL'].removeprefix('postgresql')}")
    metadata = MetaData()
    table = make_outbox_table(metadata)
    async with engine.begin() as connection:
        await connection.run_sync(metadata.create_all)
        for events in bulks(count):
            rows = [{"queue": QUEUE, "payload": body.encode(), "headers": attributes} for body, attributes in events]
            await connection.execute(insert(table), rows)
    await engine.dispose()
    engine = create_async_engine(engine.url, pool_size=WORKERS + 1)
    publisher = Publisher(topic, count)

    async def publish(message: OutboxMessage) -> None:
        await publisher.publish(message.body, message.headers)

    broker = OutboxBroker(engine, outbox_table=table, logger=None, apply_types=False)
    subscriber = broker.subscriber(
        QUEUE,
        max_workers=WORKERS,
        fetch_batch_size=1_000,
        terminal_flush_batch_size=FLUSH,
        min_fetch_interval=0.01,
        decoder=whole,
    )
    subscriber(publish)
    take_part()
    began = time.monotonic()
    await broker.start()
    seconds = await publisher.everything() - began
    await broker.stop()
    await engine.dispose()
    answer(events=publisher.acknowledged, seconds=seconds)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2])))
