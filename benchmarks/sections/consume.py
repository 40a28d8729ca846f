"""What the SDK costs: consumers whose handlers do nothing, and a call to the store beside its script alone."""

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from itertools import count
from uuid import uuid4

from google.pubsub_v1.types import PublishRequest, PubsubMessage

from benchmarks.contest import Contestant, race, start
from benchmarks.figures import Figure, Size, in_turns
from benchmarks.stand import Stand
from relay.brokers.pubsub_client import PubSubAddress, sending
from relay.dev.stack import PROJECT_ID, Part, Stack

TITLE = "Consumers, with handlers that do nothing"
SECTION = "consume"
MODES = ("none", "mark", "claim")
_MESSAGES, _QUICK_MESSAGES = 60_000, 20_000
_CALLS, _QUICK_CALLS = 20_000, 5_000
_A_REQUEST = 1_000
_BODY_BYTES = 400
_SECONDS = 30.0


def measure(stand: Stand, size: Size) -> Iterator[Figure]:  # noqa: ARG001 -- Google's emulator streams too slowly to tell
    """One process on our emulator and a Redis, mode by mode; then the calls."""
    messages, calls = (_QUICK_MESSAGES, _QUICK_CALLS) if size.quick else (_MESSAGES, _CALLS)
    with Stack.start({Part.REDIS, Part.PUBSUB}) as stack:
        names = count(1)
        kinds = {mode: partial(_consumed, stack, mode, messages, names) for mode in MODES}
        for mode, values in in_turns(size.rounds, kinds).items():
            yield Figure(SECTION, mode, "messages/s", values)
        answers = [_program(stack, "marking", str(calls)) for _ in range(size.rounds)]
        found = [race([each]).answers[0] for each in answers]
        for name, of in (("check_and_mark_processed", "ours"), ("its script alone", "bare")):
            yield Figure(SECTION, name, "calls/s", tuple(float(each[of]) for each in found))


def _consumed(stack: Stack, mode: str, messages: int, names: Iterator[int]) -> float:
    name = f"consume-{next(names)}"
    asyncio.run(_publish(PubSubAddress(PROJECT_ID, emulator=stack.pubsub_emulator_host), name, messages))
    (answer,) = race([_program(stack, "consuming", mode, name, str(messages))]).answers
    return float(answer["events"] / answer["seconds"])


def _program(stack: Stack, *words: str) -> Contestant:
    module, *arguments = words
    environment = {**os.environ, **stack.environment}
    return start([sys.executable, "-m", f"benchmarks.{module}", *arguments], environment)


async def _publish(address: PubSubAddress, name: str, messages: int) -> None:
    async with address.publisher() as publisher, address.subscriber() as subscriber:
        topic = address.topic(name)
        await publisher.create_topic(name=topic, timeout=_SECONDS)
        await subscriber.create_subscription(name=address.subscription(name), topic=topic, timeout=_SECONDS)
        send = sending(publisher)
        for start_at in range(0, messages, _A_REQUEST):
            batch = [_message(number) for number in range(start_at, min(messages, start_at + _A_REQUEST))]
            await send(topic, PublishRequest.pb()(topic=topic, messages=batch).SerializeToString(), _SECONDS)


def _message(number: int) -> object:
    identity, now = str(uuid4()), datetime.now(UTC).isoformat()
    envelope = {"event_id": identity, "event_type": "bench.event", "version": 1, "occurred_at": now, "actor": None}
    room = _BODY_BYTES - len(json.dumps(envelope | {"data": {"text": ""}}))
    attributes = {
        "event_id": identity,
        "event_type": "bench.event",
        "aggregate_type": "bench",
        "aggregate_id": str(number),
        "created_at": now,
        "sequence": str(number),
    }
    body = json.dumps(envelope | {"data": {"text": "x" * room}}).encode()
    return PubsubMessage.pb()(data=body, attributes=attributes)
