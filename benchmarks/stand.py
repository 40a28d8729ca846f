"""Where everything is measured: a durable Postgres, an emulator, a topic with one subscription that is read."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

import psutil
import psycopg

from benchmarks.contest import Contestant, start
from benchmarks.google import GooglePubSub, jar
from benchmarks.topic import Topic, topic
from relay.brokers.pubsub_client import PubSubAddress
from relay.dev.stack import PROJECT_ID, Part, Stack
from relay.outbox import schema

# What Postgres itself would have; the embedded one is smaller.
POSTGRES_SETTINGS = {"shared_buffers": "128MB"}
OURS = "the emulator of relay.dev, as Google's is not installed: not to be compared with a run on that one"
_CALM_SECONDS, _LOOK_SECONDS, _CALM_PERCENT = 10.0, 0.2, 10.0


class Emulator(Protocol):
    """The process behind the emulator's address."""

    @property
    def pid(self) -> int:
        """Of that process."""
        ...

    def expect(self, messages: int) -> None:
        """Clear up before so many messages, if need be."""
        ...

    def renew(self) -> None:
        """Begin anew, on the same address."""
        ...


@dataclass(frozen=True)
class Plain:
    """One that keeps nothing of what is gone."""

    pid: int

    def expect(self, messages: int) -> None:
        """It need not be cleared up."""

    def renew(self) -> None:
        """It is as good as new."""


@dataclass
class Calm:
    """How often the emulator had come to rest before somebody was measured: some are never at rest."""

    waits: int = 0
    in_vain: int = 0

    def wait(self, pid: int) -> None:
        """Wait until a process takes next to nothing of a core, but not for ever."""
        process, ends = psutil.Process(pid), time.monotonic() + _CALM_SECONDS
        self.waits += 1
        while process.cpu_percent(_LOOK_SECONDS) > _CALM_PERCENT:
            if time.monotonic() > ends:
                self.in_vain += 1
                return

    def __str__(self) -> str:
        return f"the emulator, before {self.waits - self.in_vain} of {self.waits} measurements"


@dataclass(frozen=True)
class Stand:
    """The servers of a benchmark."""

    database_url: str
    emulator: str
    broker: str  # what is behind the emulator's address, in words
    server: Emulator
    calm: Calm = field(default_factory=Calm)
    proven: set[str] = field(default_factory=set)  # the programs that have shown that they publish what they say
    _names: Iterator[int] = field(default_factory=lambda: count(1))

    @property
    def address(self) -> PubSubAddress:
        """The emulator."""
        return PubSubAddress(PROJECT_ID, emulator=self.emulator)

    @property
    def environment(self) -> dict[str, str]:
        """What the relay, and everybody else, reads."""
        return {
            "DATABASE_URL": self.database_url,
            "PUBSUB_EMULATOR_HOST": self.emulator,
            "PUBSUB_PROJECT_ID": PROJECT_ID,
        }

    def renew(self) -> None:
        """Let the emulator begin anew, if it is one that keeps something of every message."""
        self.server.renew()

    @contextmanager
    def topic(self, messages: int = 0) -> Iterator[Topic]:
        """A new topic with one subscription, which a process of its own reads for as long as the block lasts.

        It begins when the emulator has done with what was there before: that costs it seconds of both cores. So many
        messages are to be sent to it at once.
        """
        with topic(self.address, self.environment, f"bench-{next(self._names)}") as made:
            self.server.expect(messages)
            self.calm.wait(self.server.pid)
            yield made

    def start(self, *command: str, **environment: str) -> Contestant:
        """Start a program of this package as a contestant; it is ready when this returns."""
        return start([sys.executable, "-m", *command], {**self.environment, **environment})


@contextmanager
def stand() -> Iterator[Stand]:
    """Start the servers; all of it is gone when the block ends."""
    google = jar()
    parts = {Part.POSTGRES} if google else {Part.POSTGRES, Part.PUBSUB}
    with Stack.start(parts, postgres_settings=POSTGRES_SETTINGS, durable=True) as stack:
        with psycopg.connect(stack.database_url) as connection:
            schema.migrate(connection, "public", schema.newest())
        if google is None or stack.postgres is None:
            if stack.pubsub is None:
                raise AssertionError("started without an emulator")
            yield Stand(stack.database_url, stack.pubsub.url, OURS, Plain(stack.pubsub.pid))
            return
        emulator = GooglePubSub(stack.postgres.sandbox, google)
        emulator.start()
        yield Stand(stack.database_url, emulator.url, emulator.words, emulator)
