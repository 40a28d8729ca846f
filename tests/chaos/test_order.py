"""Ordered events under everything at once: relays that are killed, rows that fail, an operator who holds rows."""

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import errors as pg

from relay import emit
from relay.dev.pubsub import Fault, set_faults
from tests.support.audits import Audit
from tests.support.chaos import FULL, emit_events, logged, settings, sized
from tests.support.commands import Commands
from tests.support.forked import Forked
from tests.support.outbox import FAILED, PENDING, PUBLISHED, count, event
from tests.support.pubsub import PubSubSide
from tests.support.roles_of_tests import ROLES
from tests.support.waiting import until

EVENTS = sized(4_000, 200_000)
KEYS = sized(40, 1_000)
# Emitters wait for the relays, or all would be committed before the first of them dies.
AHEAD = sized(600, 40_000)
KILL_EVERY = sized(1, 2) / 2  # seconds
# Relays that die before they have begun get nowhere: on a slow machine the next one dies once so much more is out.
KILL_AFTER = sized(EVENTS // 10, 0)
LONG = sized(150, 600)  # seconds
SICK, HOPELESS = sized(12, 200), sized(2, 10)
RETRIES = {"RELAY_RETRY_BASE_MS": "50", "RELAY_RETRY_MAX_MS": "500", "RELAY_RETRY_JITTER_MS": "50"}


HOLD = """
select from outbox_events
 where id in (select id from outbox_events
               where ordering_key = any (%s) and published_at is null order by random() limit 50)
   for update skip locked
"""
NOT_BLOCKED = (
    "not exists (select from outbox_events as head where head.ordering_key = outbox_events.ordering_key "
    "and head.blocks_key and head.id < outbox_events.id)"
)


@contextmanager
def thread(work: Callable[[threading.Event], None]) -> Iterator[threading.Thread]:
    """Work beside the block, until it has done its work or the block ends; what it raises, the block raises."""
    end = threading.Event()
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work(end)
        except BaseException as error:  # noqa: BLE001 -- raised where the block ends
            raised.append(error)

    running = threading.Thread(target=run)
    running.start()
    try:
        yield running
    finally:
        end.set()
        running.join()
    if raised:
        raise raised[0]


class Emitters:
    """Services that emit events of random keys, in one statement or in several, and now and then roll back."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._left = list(range(EVENTS))
        self._sick = {f"sick-{number}" for number in range(SICK)} | {f"hopeless-{number}" for number in range(HOPELESS)}
        self._lock = threading.Lock()

    def work(self, end: threading.Event) -> None:
        """Emit until nothing is left to be emitted."""
        chance = random.Random()  # noqa: S311 -- a test's own dice
        # Of two that lock each other one is told soon.
        with psycopg.connect(self._url, options="-c deadlock_timeout=20ms") as connection:
            while not end.is_set() and (taken := self._take(chance.randrange(1, sized(40, 400)))):
                while count(self._url, PENDING) > AHEAD and not end.wait(0.01):
                    pass
                events = [event(number, **self._fields(number, chance)) for number in taken]
                while not self._committed(connection, events, chance):
                    connection.rollback()

    def _take(self, most: int) -> list[int]:
        with self._lock:
            taken, self._left = self._left[:most], self._left[most:]
        return taken

    def _fields(self, number: int, chance: random.Random) -> dict[str, Any]:
        fields: dict[str, Any] = {"ordering_key": f"key-{chance.randrange(KEYS)}"}
        if number % (EVENTS // (SICK + HOPELESS + 1)) == 1:
            with self._lock:
                if self._sick:
                    health = self._sick.pop()
                    fields["attributes"] = {"health": health}
                    if health.startswith("hopeless"):
                        # Behind another one of its key it would never be tried.
                        fields["ordering_key"] = health.replace("hopeless", "key")
        return fields

    @staticmethod
    def _committed(connection: psycopg.Connection[Any], events: list[Any], chance: random.Random) -> bool:
        half = chance.choice([0, 0, 0, len(events) // 2])
        try:
            for some in filter(None, (events[:half], events[half:])):
                emit(connection, some)
        except pg.DeadlockDetected:  # as documented: two emits in one transaction
            return False
        if chance.random() < 0.1:
            return False
        connection.commit()
        return True


class Operator:
    """Somebody who holds locks on rows that wait, wherever they stand in their keys."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.held = 0

    def work(self, end: threading.Event) -> None:
        """Hold some, let go, hold others."""
        chance = random.Random()  # noqa: S311
        with psycopg.connect(self._url) as connection:
            while not end.is_set():
                keys = [f"key-{chance.randrange(KEYS)}" for _ in range(20)]
                held = connection.execute(HOLD, [keys])
                self.held += held.rowcount
                end.wait(chance.uniform(0.01, 0.3))
                connection.rollback()


def kill_one_every_second(
    relay: Commands, folder: Path, database: str, until_then: Callable[[], bool], relays: ExitStack
) -> int:
    """Keep three relays at work, and kill the oldest of them every second; answer with the number of the dead."""

    def start(number: int) -> Forked:
        return relays.enter_context(
            logged(relay, folder / f"relay-{number}.log", **settings(200, RELAY_SLOTS="2", **RETRIES))
        )

    at_work = [start(number) for number in range(3)]
    killed = out = 0
    deadline = time.monotonic() + LONG
    while not until_then():
        assert time.monotonic() < deadline, f"not everything goes out: {out} are, {killed} relays were killed"
        next_death = time.monotonic() + KILL_EVERY
        until(lambda: time.monotonic() >= next_death, "a second passes", LONG)  # noqa: B023
        # What is alone in its topic cannot be told from a topic that is away: others go on coming.
        emit_events(database, 1)
        out, before = count(database, PUBLISHED), out
        if out - before < KILL_AFTER:
            out = before
            continue
        at_work.pop(0).kill()
        killed += 1
        at_work.append(start(2 + killed))
    return killed


@pytest.mark.slow("kills processes for seconds")
@pytest.mark.timeout(2 * LONG)
async def test_order_under_kills_failures_and_locks(
    relay: Commands, database: str, pubsub: PubSubSide, audit: Audit, tmp_path: Path
) -> None:
    """Three relays, one killed every second; rows that fail, rows that are held: first deliveries are in order."""
    channel = await pubsub.open(ordered=True)
    commands = Commands({**relay.settings, "RELAY_TOPIC": channel.topic}, tmp_path, ROLES)
    sick = [Fault("INTERNAL", "Publish", attribute="health", value=f"sick-{n}", times=20) for n in range(SICK)]
    hopeless = [
        Fault("INVALID_ARGUMENT", "Publish", attribute="health", value=f"hopeless-{n}") for n in range(HOPELESS)
    ]
    lost_answers = Fault("UNAVAILABLE", "Publish", topic=channel.topic, after=True, times=sized(5, 50))
    await set_faults(pubsub.address, *sick, *hopeless, lost_answers)

    emitters, operator = Emitters(database), Operator(database)

    def behind_the_hopeless() -> bool:
        """Everything is out but what waits for an operator."""
        return (
            count(database, "ordering_key is not null") == EVENTS
            and count(database, FAILED) == HOPELESS
            and count(database, f"{PENDING} and {NOT_BLOCKED}") == 0
        )

    with ExitStack() as relays:
        with thread(operator.work), thread(emitters.work), thread(emitters.work), thread(emitters.work):
            killed = kill_one_every_second(commands, tmp_path, database, behind_the_hopeless, relays)
        assert killed >= 1
        assert operator.held > 0
        await pubsub.heal()
        retried = commands("failed", "retry", "--all")
        assert retried.returncode == 0, retried.stderr
        until(lambda: count(database, PENDING) == 0, "nothing waits", LONG)

    report = await audit(channel)
    assert report.passed, report
    assert (report.lost, report.inversions, report.pending, report.failed) == (0, 0, 0, 0)
    assert report.expected == count(database) > EVENTS
    assert report.ordered
    if FULL:
        print(f"{killed} killed, {operator.held} rows held, {report}")  # noqa: T201
