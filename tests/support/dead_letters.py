"""A consumer's dead letters on the emulator, the command that replays them, and who acts on what comes back."""

import json
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID, uuid4

from google.pubsub_v1.types import PubsubMessage

from consumers.dead_letters import BURIED, REPLAYED_FOR, attributes_of
from consumers.decode import decode
from consumers.delivery import Delivery
from consumers.outcome import Dead
from consumers.received import Received
from consumers.sources.pubsub_dead_letters import PubSubDeadLetters
from idempotency import Claimed, Store
from relay.brokers.pubsub_client import PubSubAddress
from relay.dev.stack import PROJECT_ID
from tests.support import forked
from tests.support.pubsub import Channel, PubSubSide

ROOT = Path(__file__).parents[2]
SECONDS = 60.0
PROGRAM = "tests.support.short_holds:main"


def envelope(event_id: UUID, event_type: str = "order.paid") -> bytes:
    """An event as it travels."""
    return json.dumps(
        {
            "event_id": str(event_id),
            "event_type": event_type,
            "version": 1,
            "occurred_at": "2025-01-31T12:00:00Z",
            "actor": None,
            "data": {},
        }
    ).encode()


@dataclass
class DeadLetterDesk:
    """`consumers dead-letters …` as processes."""

    settings: dict[str, str]
    folder: Path

    def start(self, *arguments: str, **settings: str) -> forked.Forked:
        """Start a command."""
        return forked.Forked(
            PROGRAM, ["consumers", "dead-letters", *arguments], env=self._environment(settings), cwd=self.folder
        )

    def __call__(self, *arguments: str, **settings: str) -> "subprocess.CompletedProcess[str]":
        """Run a command to its end."""
        return forked.run(
            PROGRAM,
            ["consumers", "dead-letters", *arguments],
            env=self._environment(settings),
            cwd=self.folder,
            timeout=SECONDS,
        )

    def _environment(self, settings: dict[str, str]) -> dict[str, str]:
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("PUBSUB_", "GOOGLE_", "REDIS"))
        }
        return {**kept, "PYTHONPATH": str(ROOT), **self.settings, **settings}


@dataclass
class Deceased:
    """A consumer whose events became dead letters, and that works again now."""

    pubsub: PubSubSide
    store: Store
    events: Channel
    letters: Channel
    name: str = field(default_factory=lambda: f"billing-{uuid4().hex}")
    acted_on: list[UUID] = field(default_factory=list)

    async def bury(self, number: int, key: str = "", *, code: str = "GONE", event_type: str = "order.paid") -> UUID:
        """An event fails for good: it is a dead letter, and done as far as the store knows."""
        event_id = uuid4()
        body = envelope(event_id, event_type) if code != "UNDECODABLE" else b"{"
        attributes = {"event_id": str(event_id), "event_type": event_type, "sequence": str(number)}
        delivery = Delivery(body=body, attributes=attributes, message_id=f"m-{number}", ordering_key=key)
        why = attributes_of(
            delivery, Dead("gone", code), consumer=self.name, subscription=self.events.subscription, attempts=3
        )
        dead_letters = PubSubDeadLetters(PubSubAddress(PROJECT_ID, self.pubsub.address), self.letters.topic)
        await dead_letters.open()
        await dead_letters.send(delivery, why)
        await dead_letters.close()
        if code != "UNDECODABLE":
            await self._begin_and_complete(event_id, json.dumps(BURIED))
        return event_id

    async def work(self) -> list[PubsubMessage]:
        """Act once on each event that came back, and answer with all that came."""
        messages = await self.pubsub.drain(self.events)
        for message in messages:
            attributes = dict(message.attributes)
            event = decode(Delivery(body=message.data, attributes=attributes, ordering_key=message.ordering_key))
            meant = attributes.get(REPLAYED_FOR, self.name) == self.name
            if isinstance(event, Received) and meant and await self._begin_and_complete(event.event_id, None):
                self.acted_on.append(event.event_id)
        return messages

    async def _begin_and_complete(self, event_id: UUID, result: str | None) -> bool:
        """As the pipeline does in the mode `claim`; whether there was anything to do."""
        claim = await self.store.claim(self.name, event_id)
        if isinstance(claim, Claimed):
            await self.store.complete(claim, result)
        return isinstance(claim, Claimed)
