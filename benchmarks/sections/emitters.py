"""What it costs to store events: beside a bare table, with the trigger, and with a relay that sleeps when it can."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import psycopg

from benchmarks import backlog
from benchmarks.figures import Figure, Size, in_turns
from benchmarks.listen_loop import TELL_ALWAYS, TELL_NO_MORE
from benchmarks.running import at_rest, relay, until
from benchmarks.stand import Stand

TITLE = "Storing events: sixteen writers, one event a transaction"
SECTION, UNIT = "emitters", "inserts/s"
_SECONDS, _QUICK_SECONDS = 4.0, 1.0
_AWAKE_SECONDS = 30.0
_OFF = "alter table outbox_events disable trigger outbox_events_wake"
_ON = "alter table outbox_events enable trigger outbox_events_wake"


def measure(stand: Stand, size: Size) -> Iterator[Figure]:
    """Let them write, in turns."""
    seconds = _QUICK_SECONDS if size.quick else _SECONDS
    url = stand.database_url

    def rate(around: AbstractContextManager[None]) -> float:
        backlog.empty(url)
        with around:
            writers = stand.start("benchmarks.writers", str(seconds))
            writers.go()
            return float(writers.answer()["rate"])

    kinds = {
        "bare table": lambda: rate(_altered(url, _OFF, _ON)),
        "trigger, no relay": lambda: rate(nullcontext()),
        "trigger and a relay": lambda: rate(_relay(stand)),
        "trigger, and a relay that polls": lambda: rate(_polling(stand)),
        "NOTIFY at every insert": lambda: rate(_altered(url, TELL_ALWAYS, TELL_NO_MORE)),
    }
    for name, values in in_turns(size.rounds, kinds).items():
        yield Figure(SECTION, name, UNIT, values)


@contextmanager
def _altered(url: str, change: str, back: str) -> Iterator[None]:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(change.encode())
        try:
            yield
        finally:
            connection.execute(back.encode())


@contextmanager
def _relay(stand: Stand) -> Iterator[None]:
    """One that sleeps as they begin: they find it asleep, and wake it."""
    with stand.topic() as topic, relay(stand.environment, topic.name):
        at_rest(stand.database_url)
        yield


@contextmanager
def _polling(stand: Stand) -> Iterator[None]:
    """What publishing itself takes from a machine that all of them share."""
    polling = {**stand.environment, "RELAY_NOTIFY": "off"}
    with stand.topic() as topic, relay(polling, topic.name):
        backlog.fill(stand.database_url, 1, 400)
        until(lambda: not backlog.pending(stand.database_url), "a relay that polls", _AWAKE_SECONDS)
        yield
