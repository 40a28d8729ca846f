"""Consumers as processes, and what they did."""

import json
import os
import random
import signal
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from uuid import UUID, uuid4

from google.pubsub_v1.types import PubsubMessage

from relay.dev.stack import PROJECT_ID
from tests.support.commands import ROOT
from tests.support.forked import Forked
from tests.support.pubsub import Channel, PubSubSide
from tests.support.waiting import until

_A_REQUEST = 500


class Effect(NamedTuple):
    """One time that a handler had its effect."""

    event_id: UUID
    process: int
    attempt: int
    began: float
    at: float


@dataclass
class Effects:
    """The file in which the handlers of `tests.chaos.booking` write."""

    path: Path

    def read(self) -> list[Effect]:
        """All of them, as they were written one after another; of a line that is being written there is nothing yet."""
        if not self.path.exists():
            return []
        whole, _, _ = self.path.read_text().rpartition("\n")
        lines = whole.splitlines()
        return [Effect(UUID(a), int(b), int(c), float(d), float(e)) for a, b, c, d, e in map(str.split, lines)]

    def of_each(self) -> dict[UUID, list[Effect]]:
        """By event."""
        found: defaultdict[UUID, list[Effect]] = defaultdict(list)
        for effect in self.read():
            found[effect.event_id].append(effect)
        return dict(found)

    def count(self) -> int:
        """How many events had theirs."""
        return len({effect.event_id for effect in self.read()})


@dataclass
class Booking:
    """Processes of one consumer, and what happened to them."""

    environment: dict[str, str]
    effects: Effects
    folder: Path
    program: str = "tests.chaos.booking:consumer"
    running: list[Forked] = field(default_factory=list)
    killed: dict[int, float] = field(default_factory=dict)
    """Which processes were killed, and when."""
    log_of: dict[int, Path] = field(default_factory=dict)

    def start(self, **settings: str) -> Forked:
        """One more process."""
        path = self.folder / f"consumer-{len(self.log_of) + 1}.log"
        process = Forked(
            "consumers.__main__:main",
            ["consumers", "run", self.program],
            env={**self.environment, **settings},
            cwd=self.folder,
            log=path,
        )
        self.running.append(process)
        self.log_of[process.pid] = path
        return process

    def kill(self, process: Forked) -> None:
        """End it without a word."""
        self.killed[process.pid] = time.time()
        process.kill()
        process.wait()
        self.running.remove(process)

    def kill_one(self) -> None:
        """End one of them, whichever."""
        self.kill(random.choice(self.running))  # noqa: S311 -- chaos, not a secret

    def kill_one_at_work(self) -> None:
        """End one of those that receive, whichever; some do, or will."""
        until(lambda: any(map(self._has_started, self.running)), "one has started")
        self.kill(random.choice([each for each in self.running if self._has_started(each)]))  # noqa: S311 -- chaos, not a secret

    def until_started(self) -> None:
        """Return when each that runs has said that it receives."""
        until(lambda: all(map(self._has_started, self.running)), "all have started")

    def _has_started(self, process: Forked) -> bool:
        return "started" in self._log(process).lower()

    def _log(self, process: Forked) -> str:
        return self.log_of[process.pid].read_text()

    def stop(self, process: Forked, seconds: float) -> int:
        """Ask it to end, as a platform does, and answer with its exit code."""
        process.send_signal(signal.SIGTERM)
        code = process.wait(seconds)
        self.running.remove(process)
        return code

    def said(self) -> str:
        """The ends of all logs."""
        return "\n".join(
            f"--- {log.name}\n" + "\n".join(log.read_text().splitlines()[-15:])
            for log in sorted(self.folder.glob("consumer-*.log"))
        )

    def until_done(self, events: int, seconds: float) -> None:
        """Return when so many events have had their effect."""

        def done() -> bool:
            assert all(process.poll() is None for process in self.running), f"a consumer ended:\n{self.said()}"
            return self.effects.count() >= events

        until(done, f"{events} effects", seconds)


@contextmanager
def booking(
    channel: Channel,
    dead_letters: str,
    addresses: dict[str, str],
    folder: Path,
    program: str = "tests.chaos.booking:consumer",
) -> Iterator[Booking]:
    """Processes of one consumer; those that still run at the end of the block are killed."""
    ours = ("CONSUMERS_", "IDEMPOTENCY_", "INBOX_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    effects = folder / "effects"
    environment = {
        **kept,
        **addresses,
        "PYTHONPATH": str(ROOT),
        "PUBSUB_PROJECT_ID": PROJECT_ID,
        "SUBSCRIPTION": channel.subscription,
        "DEAD_LETTERS": dead_letters,
        "EFFECTS": str(effects),
    }
    processes = Booking(environment, Effects(effects), folder, program)
    try:
        yield processes
    finally:
        for process in processes.running:
            process.kill()
            process.wait()


async def publish(  # noqa: PLR0913 -- each by its name
    side: PubSubSide,
    channel: Channel,
    number: int,
    *,
    times: int = 1,
    data: object = None,
    event_type: str = "order.paid",
) -> set[UUID]:
    """Publish so many events, each as so many messages that differ in nothing, and shuffled."""
    identities = [uuid4() for _ in range(number)]
    wanted = identities * times
    random.shuffle(wanted)
    for start in range(0, len(wanted), _A_REQUEST):
        await side.publish(channel, [_message(each, event_type, data) for each in wanted[start : start + _A_REQUEST]])
    return set(identities)


def _message(identity: UUID, event_type: str, data: object) -> PubsubMessage:
    now = datetime.now(UTC).isoformat()
    envelope = {
        "event_id": str(identity),
        "event_type": event_type,
        "version": 1,
        "occurred_at": now,
        "actor": None,
        "data": {"order_id": 1} if data is None else data,
    }
    attributes = {"event_id": str(identity), "event_type": event_type, "created_at": now}
    return PubsubMessage(data=json.dumps(envelope).encode(), attributes=attributes)


def repeated(effects: dict[UUID, list[Effect]]) -> dict[UUID, Sequence[Effect]]:
    """The events that had their effect more than once."""
    return {event: each for event, each in effects.items() if len(each) > 1}
