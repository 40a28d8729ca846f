"""A table is taken over under load, by a command that dies on its way: each row goes out once, by one of the two."""

import random
import signal
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg import errors as pg

from relay.adopt.crash_points import Point
from tests.support import old_outboxes as old
from tests.support.bench import Bench
from tests.support.chaos import ROUNDS, sized
from tests.support.commands import Commands
from tests.support.outbox import PENDING, count
from tests.support.waiting import until

WRITERS = 3
KEYS = 4  # of each writer
BACKLOG = sized(600, 5_000)
BATCH = 100
OF_THE_END = (Point.FENCE_BEFORE, Point.TRIGGER_BEFORE, Point.TRIGGER_AFTER, Point.DONE)
OF_A_BATCH = tuple(point for point in Point if point not in OF_THE_END)
# What a service does again, as after any lock.
_AGAIN = (pg.DeadlockDetected, pg.LockNotAvailable)
_OPTIONS = [*old.options(), "--take-over", "--batch", str(BATCH), "--lock-timeout", "5s"]

pytestmark = [pytest.mark.slow("a take-over under load, killed at each point"), pytest.mark.timeout(600)]


class Shop:
    """Services that store rows, each with keys of its own, and an old publisher that sends them."""

    def __init__(self, url: str, *, publishes: bool) -> None:
        self._url = url
        self._stopping = threading.Event()
        self._publishing = threading.Event()
        self._threads = [threading.Thread(target=self._guarded, args=(self._write, each)) for each in range(WRITERS)]
        if publishes:
            self._publishing.set()
            self._threads.append(threading.Thread(target=self._guarded, args=(self._publish, 0)))
        self.sent: list[str] = []
        self.committed: dict[str, list[str]] = defaultdict(list)  # of each key, in the order of commits
        self.errors: list[Exception] = []

    @contextmanager
    def open(self) -> Iterator[None]:
        """Trade for as long as the block."""
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            for thread in self._threads:
                thread.join(60)
        assert not self.errors, self.errors

    @property
    def stored(self) -> int:
        """How many rows are committed."""
        return sum(map(len, self.committed.values()))

    def _guarded(self, work: object, number: int) -> None:
        try:
            while not self._stopping.is_set():
                work(number)  # type: ignore[operator]
        except Exception as error:  # noqa: BLE001 -- the test fails by it
            self.errors.append(error)

    def _write(self, number: int) -> None:
        """Transactions of some rows, some of which commit late, and some of which do not commit."""
        dice = random.Random()  # noqa: S311 -- chaos
        with psycopg.connect(self._url) as connection:
            while not self._stopping.is_set():
                rows = [(f"{number}{dice.randrange(KEYS)}") for _ in range(dice.randint(1, 4))]
                try:
                    stored = [(order, self._store(connection, order)) for order in rows]
                    self._stopping.wait(dice.choice([0, 0, 0.005, 0.05]))
                    if dice.random() < 0.2:
                        connection.rollback()
                        continue
                    connection.commit()
                except _AGAIN:
                    connection.rollback()
                    continue
                for order, uuid in stored:
                    self.committed[order].append(uuid)

    @staticmethod
    def _store(connection: psycopg.Connection, order: str) -> str:
        found = connection.execute(
            "insert into shop.events (kind, order_id, payload) values ('order.paid', %s, '{}') returning uuid::text",
            [order],
        ).fetchone()
        assert found is not None
        return str(found[0])

    def _publish(self, _: int) -> None:
        """As they all do it: lock some rows, send them, mark them. What it sent counts once it is committed.

        It never sends all: each command is to find enough to move, however long it takes to start.
        """
        with psycopg.connect(self._url) as connection:
            while not self._stopping.is_set():
                rows = connection.execute(
                    "select id, uuid::text from shop.events where sent_at is null "
                    "and (select count(*) from shop.events where sent_at is null) > %s "
                    "order by id limit 5 for update skip locked",
                    [BACKLOG // 2],
                ).fetchall()
                connection.execute(
                    "update shop.events set sent_at = now() where id = any (%s)", [[row_id for row_id, _ in rows]]
                )
                self._stopping.wait(0.002)
                connection.commit()
                self.sent += [uuid for _, uuid in rows]


def take_over(relay: Commands, point: Point, nth: int) -> int:
    """Run the command until it has died or is done."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.chaos.dying_adoption", point.value, str(nth), *_OPTIONS, "--publisher-stopped"],
        env=relay._environment({}),
        cwd=relay._folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode in {0, -signal.SIGKILL}, ran.stderr
    return ran.returncode


async def drained(url: str) -> Sequence[str]:
    """What a relay publishes until nothing is left."""
    bench = Bench(url)
    while count(url, PENDING):
        await bench.run_once()
    await bench.publisher.close()
    return bench.broker.event_ids


@pytest.mark.parametrize("publisher", ["running", "stopped"])
@pytest.mark.parametrize("turn", range(ROUNDS))
async def test_a_table_is_taken_over_under_load_by_a_command_that_dies(
    database: str, tmp_path: Path, publisher: str, turn: int
) -> None:
    """Each committed row goes out once, wherever it died; and in order, unless two send side by side."""
    publishes = publisher == "running"
    dice = random.Random(f"{publishes} {turn}")  # noqa: S311 -- to repeat
    relay = Commands({"DATABASE_URL": database, "PYTHONPATH": str(Path(__file__).parents[2])}, tmp_path)
    old.home_made(database)
    old.run(database, "create index on shop.events (id) where sent_at is null")
    with psycopg.connect(database) as connection:
        connection.execute(
            "insert into shop.events (kind, order_id, payload) "
            "select 'order.paid', 100 + n %% 5, '{}' from generate_series(1, %s) as n",
            [BACKLOG],
        )
    shop = Shop(database, publishes=publishes)
    of_a_batch = dice.sample(OF_A_BATCH, len(OF_A_BATCH))
    of_the_end = dice.sample(OF_THE_END, len(OF_THE_END))
    deaths = 0
    with shop.open():
        until(lambda: shop.stored > 20 or bool(shop.errors), "services store rows")
        for point in of_a_batch:
            deaths += take_over(relay, point, dice.randint(1, 2)) != 0
        for point in of_the_end:
            assert take_over(relay, point, 1) != 0, f"it did not come to {point}"
        assert take_over(relay, Point.DONE, 1_000) == 0
        before = shop.stored
        until(lambda: shop.stored > before + 50 or bool(shop.errors), "services store rows behind the trigger")
    assert deaths, "none of them died in the middle of a batch"
    assert old.rows_of(database, "select count(*) from shop.events where sent_at is null") == [(0,)]
    published = await drained(database)
    backlog = [
        str(uuid) for (uuid,) in old.rows_of(database, "select uuid from shop.events where order_id >= 100 order by id")
    ]
    committed = [*backlog, *(uuid for uuids in shop.committed.values() for uuid in uuids)]
    assert Counter([*shop.sent, *published]) == Counter(committed)
    assert published
    if publishes:
        return
    place = {uuid: number for number, uuid in enumerate(published)}
    for key, uuids in shop.committed.items():
        assert [place[uuid] for uuid in uuids] == sorted(place[uuid] for uuid in uuids), f"key {key} is out of order"
    assert [place[uuid] for uuid in backlog[::5]] == sorted(place[uuid] for uuid in backlog[::5])
