"""`make demo`: an order in, one shipment out, whatever happens on the way. Exits 0 only if that is what happened."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from google.pubsub_v1.types import PubsubMessage

from examples.demo.screen import Screen
from examples.demo.shop import ROLLED_BACK_EVERY, Shop
from relay.brokers.pubsub_client import PubSubAddress
from relay.brokers.pubsub_reader import PubSubReader
from relay.dev.prepare import prepare
from relay.dev.pubsub import Fault, set_faults
from relay.dev.stack import PROJECT_ID, Stack
from relay.operate.audit import AuditedOutbox, AuditReport, audit
from relay.routes import Routes

TRANSACTIONS = 1_000
ROLLED_BACK = TRANSACTIONS // ROLLED_BACK_EVERY
RELAYS = 2
OUTAGE_SECONDS = 3.0
PATIENCE_SECONDS = 60.0
QUIET_SECONDS = 1.0
TOPIC, SHIPPING, AUDIT, COPIES = "orders", "shipping", "audit", "copies"
RELAY = ("relay", "run")
CONSUMER = ("consumers", "run", "examples.demo.shipping:shipping")
DEAD_LETTERS = ("consumers", "dead-letters", "create", "examples.demo.shipping:shipping")


@dataclass(frozen=True)
class Ending:
    """What the database says when all is over."""

    pending: int
    failed: int
    shipments: int
    orders_shipped_once: int


def main() -> int:
    """Run the demo on a stack of its own."""
    screen = Screen()
    try:
        fine = on_a_stack(screen)
    except KeyboardInterrupt:
        screen.say("stopped early; the servers and their data are gone")
        return 128 + signal.SIGINT
    screen.say("the servers and their data are gone")
    return 0 if fine else 1


def on_a_stack(screen: Screen) -> bool:
    """Start the servers, the relays and the consumer, run the demo, and stop them."""
    screen.say("starting Postgres, Redis and a Pub/Sub emulator in a temporary folder")
    with Stack.start() as stack, ExitStack() as processes:
        prepare(stack, "public", TOPIC, SHIPPING, AUDIT, COPIES)
        logs = Path(processes.enter_context(tempfile.TemporaryDirectory(prefix="demo-")))
        run(stack, *DEAD_LETTERS)
        fine = asyncio.run(demo(stack, screen, logs, processes))
        if not fine:
            for log in sorted(logs.iterdir()):
                print(f"--- the end of {log.name}", *log.read_text().splitlines()[-20:], sep="\n")
    return fine


async def demo(stack: Stack, screen: Screen, logs: Path, processes: ExitStack) -> bool:
    """Sell, break the broker, send a message twice, and compare what came of it with what was promised."""
    address = PubSubAddress(PROJECT_ID, emulator=stack.pubsub_emulator_host)
    async with await psycopg.AsyncConnection.connect(stack.database_url) as connection:
        shop = Shop(connection)
        await shop.open()
        for number in range(RELAYS):
            processes.enter_context(process(stack, logs / f"relay-{number}.log", *RELAY))
        shipping = Shipping(stack.database_url, logs / "shipping.log")
        processes.enter_context(process(stack, shipping.log, *CONSUMER))
        screen.say(f"{RELAYS} relays and a consumer run; {TRANSACTIONS} orders come in")
        watcher = asyncio.create_task(watch(shop, shipping, screen))
        try:
            await sell(shop, address, stack, screen)
            screen.say("all orders are in; waiting until every event is out and acted on")
            await until_settled(stack.database_url, shop, shipping)
        finally:
            watcher.cancel()
            await asyncio.gather(watcher, return_exceptions=True)
    screen.say("comparing the outbox with all that the broker delivered")
    report = await compare(stack.database_url, address)
    return verdict(shop, shipping, await ending(stack.database_url), report, screen)


@dataclass
class Shipping:
    """What the consumer has done, as its table and its log say."""

    url: str
    log: Path
    shipped: int = 0

    async def look(self) -> None:
        """Count the shipments."""
        self.shipped = (await ending(self.url)).shipments

    @property
    def recognised(self) -> int:
        """How many deliveries were of an event that was shipped before."""
        lines = map(json.loads, self.log.read_text().splitlines()) if self.log.exists() else ()
        return sum(line.get("outcome") == "duplicate" for line in lines)


async def sell(shop: Shop, address: PubSubAddress, stack: Stack, screen: Screen) -> None:
    """Take the orders, with the faults on the way."""
    outage: asyncio.Task[None] | None = None
    for number in range(1, TRANSACTIONS + 1):
        await shop.take(number)
        if number == TRANSACTIONS // 4:
            await shop.take_poison()
            screen.say("a poison row is written by hand: no broker would take its message")
        elif number == TRANSACTIONS // 2:
            outage = asyncio.create_task(break_broker(stack.pubsub_emulator_host, screen))
        await asyncio.sleep(0.001)
    if outage:
        await outage
    await duplicate_one(address)
    screen.say("one message is sent a second time")


async def duplicate_one(address: PubSubAddress) -> None:
    """Send a message again, as a relay does that dies between the broker's answer and its commit."""
    async with address.subscriber() as subscriber, address.publisher() as publisher:
        name = address.subscription(COPIES)
        response = await subscriber.pull(subscription=name, max_messages=1, timeout=PATIENCE_SECONDS)
        message = response.received_messages[0].message
        again = PubsubMessage(data=message.data, attributes=dict(message.attributes))
        await publisher.publish(topic=address.topic(TOPIC), messages=[again])


async def break_broker(emulator: str, screen: Screen) -> None:
    """Let the broker refuse everything for a while."""
    await set_faults(emulator, Fault("UNAVAILABLE", method="Publish"))
    screen.say(f"the broker is away for {OUTAGE_SECONDS:.0f} s; orders go on")
    await asyncio.sleep(OUTAGE_SECONDS)
    await set_faults(emulator)
    screen.say("the broker is back")


async def watch(shop: Shop, shipping: Shipping, screen: Screen) -> None:
    """Show how far both sides are."""
    while True:
        await shipping.look()
        screen.progress(shop.committed, shipping.shipped, TRANSACTIONS - ROLLED_BACK)
        await asyncio.sleep(0.1)


async def until_settled(url: str, shop: Shop, shipping: Shipping) -> None:
    """Wait until nothing is pending and everything was acted on, or patience ends: the table tells which."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (await ending(url)).pending or shipping.shipped < shop.committed or not shipping.recognised:
        if time.monotonic() > deadline:
            return
        await asyncio.sleep(0.05)


async def ending(url: str) -> Ending:
    """Count what is in the tables."""
    async with await psycopg.AsyncConnection.connect(url) as connection:
        cursor = await connection.execute("""
            select (select count(*) from outbox_events where published_at is null and failed_at is null),
                   (select count(*) from outbox_events where failure_reason = 'non_retryable'),
                   (select count(*) from shipments),
                   (select count(*) from orders where 1 = (select count(*) from shipments where order_id = orders.id))
        """)
        row = await cursor.fetchone()
    assert row  # noqa: S101 -- a select without a table has one row
    return Ending(*row)


async def compare(url: str, address: PubSubAddress) -> AuditReport:
    """Let the oracle read everything that the broker delivered."""
    async with (
        await psycopg.AsyncConnection.connect(url, autocommit=True) as connection,
        PubSubReader(address, AUDIT) as reader,
    ):
        return await audit(reader, AuditedOutbox(connection, "public", PROJECT_ID, Routes(TOPIC)), QUIET_SECONDS)


def verdict(shop: Shop, shipping: Shipping, end: Ending, report: AuditReport, screen: Screen) -> bool:
    """Show what was promised beside what came of it."""
    expectations = [
        ("orders committed", TRANSACTIONS - ROLLED_BACK, shop.committed),
        ("orders rolled back", ROLLED_BACK, shop.rolled_back),
        ("events published", shop.committed, report.expected),
        ("events lost", 0, report.lost),
        ("messages of no event", 0, report.unknown + report.undecodable),
        ("messages that differ from their row", 0, report.mismatched + report.misrouted),
        ("events left pending", 0, end.pending),
        ("poison rows kept as failed", 1, end.failed),
        ("messages sent twice", 1, report.duplicates),
        ("duplicates recognised", 1, shipping.recognised),
        ("shipments", shop.committed, end.shipments),
        ("orders shipped exactly once", shop.committed, end.orders_shipped_once),
    ]
    rows = [(name, expected, found, expected == found) for name, expected, found in expectations]
    screen.table(rows)
    return report.passed and all(fine for *_, fine in rows)


@contextmanager
def process(stack: Stack, log: Path, *program: str) -> Iterator[None]:
    """A program beside this one, stopped the way a platform stops it."""
    with (
        log.open("w") as output,
        subprocess.Popen(
            [sys.executable, "-m", *program], env=environment(stack), stdout=output, stderr=output
        ) as running,
    ):
        try:
            yield
        finally:
            running.send_signal(signal.SIGTERM)


def run(stack: Stack, *program: str) -> None:
    """A program that ends by itself."""
    subprocess.run([sys.executable, "-m", *program], env=environment(stack), check=True, stdout=subprocess.DEVNULL)


def environment(stack: Stack) -> dict[str, str]:
    """What all programs of the demo read. The consumer tells of each delivery, so that duplicates can be counted."""
    return {**os.environ, **stack.environment, "RELAY_TOPIC": TOPIC, "CONSUMERS_LOG_EVENTS": "on"}


if __name__ == "__main__":
    sys.exit(main())
