"""faststream-outbox: an outbox for FastStream, in Python.

    python -m benchmarks.peers.faststream_outbox_drain TOPIC EVENTS

A worker handles one event and holds a connection: there are 48 of them, and the connections are open before the clock
runs. The table has the package's settings for vacuum. They fetch 1,000 rows at once and delete what they have published
in batches. The handler is given the message as it is: neither its body is decoded nor its arguments are checked, and no
line is logged for it.
"""

import asyncio
import os
import sys
import time

import uvloop
from faststream_outbox import OutboxBroker, make_outbox_table, outbox_autovacuum_ddl
from faststream_outbox.message import OutboxMessage
from sqlalchemy import MetaData, insert, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from benchmarks.contest import answer, take_part
from benchmarks.peers.collector import spare_the_collector
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
        await connection.execute(text(outbox_autovacuum_ddl(table.name)))
        for events in bulks(count):
            rows = [{"queue": QUEUE, "payload": body.encode(), "headers": attributes} for body, attributes in events]
            await connection.execute(insert(table), rows)
    await engine.dispose()
    engine = create_async_engine(engine.url, pool_size=WORKERS + 1)
    await _connect(engine)
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
    spare_the_collector()
    take_part()
    began = time.monotonic()
    await broker.start()
    seconds = await publisher.everything() - began
    await broker.stop()
    await engine.dispose()
    answer(events=publisher.acknowledged, seconds=seconds)


async def _connect(engine: AsyncEngine) -> None:
    """Open all that its pool may hold."""
    for connection in await asyncio.gather(*(engine.connect() for _ in range(WORKERS + 1))):
        await connection.close()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2])))
