"""What it costs to store events while relays are told of them: `python -m tests.chaos.insert_rate`.

Sixteen writers, each a process, store one row a transaction, side by side in one run and in turns:

no trigger        the trigger is off, and no relay is there
trigger           the trigger is on, and no relay is there
poll              no trigger, and a relay with RELAY_NOTIFY=off that works
sleep             the trigger is on, and a relay works, and sleeps whenever it can
poll, bursts      the same two, in bursts with pauses that are long enough to fall asleep in
sleep, bursts
always            a trigger that notifies with every insert, and somebody who listens
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from threading import Event, Thread

import psycopg

from relay import emit
from relay.dev.stack import PROJECT_ID, Part, Stack
from tests.support.commands import Commands
from tests.support.outbox import event
from tests.support.postgres import fresh_database, migrated_template

WRITERS = 16
BURSTS, BURST_SECONDS, REST_SECONDS = 4, 0.5, 1.5

OFF = "alter table outbox_events disable trigger outbox_events_wake"
ALWAYS = f"""
create function always() returns trigger language plpgsql
as $$ begin perform pg_notify('always', ''); return null; end $$;
create trigger always after insert on outbox_events for each statement execute function always();
{OFF};
"""
INSERT = """
insert into outbox_events (event_id, event_type, aggregate_type, aggregate_id, payload)
select id, 'order.paid', 'order', '1', jsonb_build_object('event_id', id, 'event_type', 'order.paid', 'version', 1,
       'occurred_at', '2026-01-01T00:00:00Z', 'actor', null, 'data', repeat('x', 200))
  from outbox_uuid7(clock_timestamp()) as id
"""

Around = Callable[[str], AbstractContextManager[None]]


@dataclass(frozen=True)
class Kind:
    """What surrounds the writers, and in how many bursts they write."""

    name: str
    around: tuple[Around, ...] = ()
    bursts: int = 1


def write(url: str, seconds: float, bursts: int, start: Barrier, answers: "SimpleQueue[tuple[int, float]]") -> None:
    """Store events, one a transaction; answer with how many, and how long that took."""
    rows, took = 0, 0.0
    with psycopg.connect(url, autocommit=True) as connection:
        for burst in range(bursts):
            if burst:
                time.sleep(REST_SECONDS)
            start.wait()
            began = time.monotonic()
            while time.monotonic() - began < seconds:
                connection.execute(INSERT)
                rows += 1
            took += time.monotonic() - began
    answers.put((rows, took))


def rate(url: str, seconds: float, bursts: int) -> float:
    """Rows a second of all writers together."""
    context = get_context("fork")
    start = context.Barrier(WRITERS)
    answers: SimpleQueue[tuple[int, float]] = context.SimpleQueue()
    values = (url, BURST_SECONDS if bursts > 1 else seconds, bursts, start, answers)
    processes = [context.Process(target=write, args=values) for _ in range(WRITERS)]
    for process in processes:
        process.start()
    found = [answers.get() for _ in processes]
    for process in processes:
        process.join()
    return sum(rows / took for rows, took in found)


@contextmanager
def altered(url: str, change: str) -> Iterator[None]:
    """The table, changed."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(change.encode())
    yield


@contextmanager
def listener(url: str) -> Iterator[None]:
    """Somebody who listens to every insert."""
    end = Event()

    def listen() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("listen always")
            while not end.is_set():
                for _ in connection.notifies(timeout=0.1):
                    pass

    thread = Thread(target=listen)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


@contextmanager
def relay(url: str, emulator: str, folder: Path, **settings: str) -> Iterator[None]:
    """A relay at work."""
    known = {"DATABASE_URL": url, "PUBSUB_EMULATOR_HOST": emulator, "PUBSUB_PROJECT_ID": PROJECT_ID}
    commands = Commands({**known, "RELAY_LOG_LEVEL": "error", **settings}, folder)
    commands("topics", "ensure")
    with commands.background("run"):
        with psycopg.connect(url, autocommit=True) as connection:
            with connection.transaction():
                emit(connection, event())
            while not connection.execute("select 1 from outbox_events where published_at is not null").fetchone():
                time.sleep(0.05)
        time.sleep(REST_SECONDS)
        yield


def kinds(emulator: str, folder: Path) -> tuple[Kind, ...]:
    """All of them, in the order in which they take their turns."""
    off = partial(altered, change=OFF)
    working = partial(relay, emulator=emulator, folder=folder)
    polling = partial(working, RELAY_NOTIFY="off")
    return (
        Kind("no trigger", (off,)),
        Kind("trigger"),
        Kind("poll", (off, polling)),
        Kind("sleep", (working,)),
        Kind("poll, bursts", (off, polling), BURSTS),
        Kind("sleep, bursts", (working,), BURSTS),
        Kind("always", (partial(altered, change=ALWAYS), listener)),
    )


def main() -> None:
    """Print a table: the median of all rounds, and each of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    found: dict[str, list[float]] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        Stack.start([Part.POSTGRES, Part.PUBSUB]) as stack,
        migrated_template(stack.database_url) as template,
    ):
        for _ in range(options.rounds):
            for kind in kinds(stack.pubsub_emulator_host, Path(folder)):
                with fresh_database(stack.database_url, template) as url, ExitStack() as entered:
                    for around in kind.around:
                        entered.enter_context(around(url))
                    found.setdefault(kind.name, []).append(rate(url, options.seconds, kind.bursts))
    for name, rates in found.items():
        print(f"{name:<14} {statistics.median(rates):>7.0f}/s   {'  '.join(f'{each:.0f}' for each in rates)}")  # noqa: T201


if __name__ == "__main__":
    main()
