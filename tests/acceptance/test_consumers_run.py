"""`consumers run` as an operator has it: a process with an environment, its lines, its end."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from google.pubsub_v1.types import PubsubMessage

from relay.dev.stack import Stack
from tests.support import forked
from tests.support.commands import ROOT, SECONDS, terminate
from tests.support.forked import Forked
from tests.support.pubsub import Channel, PubSubSide
from tests.support.waiting import until

PROGRAM = "consumers.__main__:main"
SHOP = """
import asyncio, os, time
from consumers import Consumer, Context, FatalError, Received

billing = Consumer("billing", subscription=os.environ["SUBSCRIPTION"], dead_letter_topic=os.environ["DEAD_LETTERS"])
shipping = Consumer(
    "shipping", subscription=os.environ["OTHER"], dead_letter_topic=os.environ["DEAD_LETTERS"], dedup="none"
)
both = [billing, shipping]

@billing.on("order.paid")
async def book(event: Received, ctx: Context) -> None:
    ctx.log.info("booked", cents=event.data)

@billing.on("order.refused")
async def refuse(event: Received) -> None:
    raise FatalError("the card is refused", "CARD")

@billing.on("order.stuck")
def stuck(event: Received, ctx: Context) -> None:
    ctx.log.info("waits")
    time.sleep(600)

@shipping.fallback
async def ship(event: Received, ctx: Context) -> None:
    ctx.log.info("shipped")
"""


class Shop:
    """The processes of a shop, and its events."""

    def __init__(self, side: PubSubSide, channel: Channel, environment: dict[str, str], folder: Path) -> None:
        self._side = side
        self._channel = channel
        self._environment = environment
        self._folder = folder
        self._log = folder / "log"

    async def publish(self, event_type: str) -> str:
        """An event as the relay publishes it; answers with its id."""
        event_id = str(uuid4())
        body = {
            "event_id": event_id,
            "event_type": event_type,
            "version": 1,
            "occurred_at": "2026-01-01T00:00:00Z",
            "actor": None,
            "data": 1999,
        }
        message = PubsubMessage(data=json.dumps(body).encode(), attributes={"event_id": event_id})
        await self._side.publish(self._channel, [message])
        return event_id

    def run(self, *names: str, **settings: str) -> "subprocess.CompletedProcess[str]":
        """Run a process that ends by itself."""
        return forked.run(
            PROGRAM,
            ["consumers", "run", *names],
            env={**self._environment, **settings},
            cwd=self._folder,
            timeout=SECONDS,
        )

    @contextmanager
    def running(self, *names: str, **settings: str) -> Iterator[Forked]:
        """A process, killed at the end of the block if it still runs."""
        with Forked(
            PROGRAM,
            ["consumers", "run", *names],
            env={**self._environment, **settings},
            cwd=self._folder,
            log=self._log,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def until(self, process: Forked, line: str, **fields: Any) -> dict[str, Any]:
        """Wait for a line with these fields."""
        found: list[dict[str, Any]] = []

        def is_there() -> bool:
            found[:] = [each for each in self.lines() if each["event"] == line and each.items() >= fields.items()]
            return bool(found) or process.poll() is not None

        until(is_there, f"a line {line}", SECONDS)
        assert found, self._log.read_text()
        return found[0]

    def lines(self) -> list[dict[str, Any]]:
        """What the process has logged; each whole line is JSON."""
        return [json.loads(line) for line in self._log.read_text().splitlines(keepends=True) if line.endswith("}\n")]


@pytest.fixture
async def shop(stack: Stack, pubsub: PubSubSide, channel: Channel, tmp_path: Path) -> Shop:
    """A folder with the module of the shop, and its subscriptions."""
    (tmp_path / "the_shop.py").write_text(SHOP)
    other, dead_letters = await pubsub.open(), await pubsub.open()
    environment = {
        **os.environ,
        **stack.environment,
        "PYTHONPATH": str(ROOT),
        "IDEMPOTENCY_PREFIX": uuid4().hex,
        "SUBSCRIPTION": channel.subscription,
        "OTHER": other.subscription,
        "DEAD_LETTERS": dead_letters.topic,
    }
    return Shop(pubsub, channel, environment, tmp_path)


async def test_consumers_of_one_process_work_until_sigterm(shop: Shop) -> None:
    """Each has a line when it has begun; what handlers log has the same form; nothing is held in the end."""
    with shop.running("the_shop:both", CONSUMERS_NAME="eu-1", CONSUMERS_LOG_EVENTS="on") as process:
        shop.until(process, "consumer_started", consumer="shipping")
        event_id = await shop.publish("order.paid")
        booked = shop.until(process, "booked", event_id=event_id)
        done = shop.until(process, "delivery_settled", event_id=event_id)
        refused = await shop.publish("order.refused")
        dead = shop.until(process, "delivery_failed", event_id=refused)
        process.send_signal(signal.SIGTERM)
        code = process.wait(SECONDS)

    assert code == 0
    assert (booked["consumer"], booked["attempt"], booked["cents"], booked["app"]) == ("billing", 1, 1999, "eu-1")
    assert (done["outcome"], done["consumer"], done["app"]) == ("done", "billing", "eu-1")
    assert (dead["outcome"], dead["code"], dead["level"]) == ("dead", "CARD", "error")
    ends = [line["event"] for line in shop.lines() if line["event"] in {"shutdown", "consumer_stopped", "stopped"}]
    assert ends == ["shutdown", "consumer_stopped", "consumer_stopped", "stopped"]
    stats = [line for line in shop.lines() if line["event"] == "consumer_stats"]
    assert {(line["consumer"], tuple(line["outcomes"].items())) for line in stats} == {
        ("billing", (("done", 1), ("dead", 1))),
        ("shipping", ()),
    }


async def test_a_thread_that_does_not_return_is_named_and_left_behind(shop: Shop) -> None:
    """The process ends all the same, with 1."""
    with shop.running("the_shop:billing", CONSUMERS_SHUTDOWN_MS="100ms") as process:
        event_id = await shop.publish("order.stuck")
        shop.until(process, "waits", event_id=event_id)
        process.send_signal(signal.SIGTERM)
        code = process.wait(SECONDS)

    assert code == 1
    (stopped,) = (line for line in shop.lines() if line["event"] == "stopped")
    assert stopped["level"] == "warning"
    assert [name for name in stopped["abandoned"] if "stuck" in name and event_id in name]


async def test_a_second_signal_ends_the_process_at_once(shop: Shop) -> None:
    """For whoever will not wait."""
    with shop.running("the_shop:billing") as process:
        shop.until(process, "waits", event_id=await shop.publish("order.stuck"))
        process.send_signal(signal.SIGTERM)
        shop.until(process, "shutdown", reason="SIGTERM")
        process.send_signal(signal.SIGTERM)

        assert process.wait(SECONDS) == 128 + signal.SIGTERM


@pytest.mark.parametrize(
    ("names", "settings", "sentences"),
    [
        (
            ["the_shop:none"],
            {},
            ["'the_shop:none': the module has nothing of that name; it has the_shop:billing, the_"],
        ),
        (["the_shop:both"], {"OTHER": "missing"}, ["consumer 'shipping': there is no subscription projects/"]),
        (["the_shop:billing"], {"REDIS_URL": ""}, ["REDIS_URL is not set; "]),
        (["the_shop:billing", "the_shop:both"], {}, ["2 consumers are named 'billing', and each would take"]),
    ],
)
def test_a_wrong_call_ends_in_sentences(
    shop: Shop, names: list[str], settings: dict[str, str], sentences: list[str]
) -> None:
    """Exit 2, whatever began to work beside it."""
    done = shop.run(*names, **settings)

    assert done.returncode == 2, done.stderr
    said = [line.removeprefix("consumers: ") for line in done.stderr.splitlines() if not line.startswith("{")]
    assert len(said) == len(sentences)
    for line, sentence in zip(said, sentences, strict=True):
        assert line.startswith(sentence)


@pytest.mark.slow("an outage of seconds")
async def test_without_redis_nothing_is_begun_and_the_process_waits(shop: Shop) -> None:
    """It fails closed, tells of it, and ends in order when it is asked to."""
    with shop.running("the_shop:billing", REDIS_URL="redis://127.0.0.1:1") as process:
        await shop.publish("order.paid")
        away = shop.until(process, "store_failed")
        code, _ = terminate(process)

    assert away["remedy"].startswith("none is needed when Redis comes back")
    assert code == 0
    assert "booked" not in {line["event"] for line in shop.lines()}
