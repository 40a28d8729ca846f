"""How much chaos: a little in `make test`, all of it in `make chaos`, which sets CHAOS=full."""

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import psycopg
from psycopg.conninfo import make_conninfo

from relay import emit
from relay.publisher.crash_points import Point
from tests.support.commands import Commands
from tests.support.forked import Forked
from tests.support.outbox import PENDING, PUBLISHED, count, event
from tests.support.roles_of_tests import as_emitter
from tests.support.waiting import until

FULL: Final = os.environ.get("CHAOS") == "full"
ROUNDS: Final = 10 if FULL else 1
SECONDS: Final = 300.0 if FULL else 45.0

QUICK: Final = {"RELAY_POLL_MS": "10", "RELAY_POLL_JITTER_MS": "10", "RELAY_OUTAGE_MAX_MS": "500"}


def sized(little: int, much: int) -> int:
    """The size of a test: so much in `make chaos`."""
    return much if FULL else little


def settings(batch: int, **others: str) -> dict[str, str]:
    """A relay that works in small batches, one at a time, so that there is a middle, and does not wait long."""
    return QUICK | {"RELAY_BATCH_SIZE": str(batch), "RELAY_SLOTS": "1"} | others


def emit_events(url: str, number: int, first: int = 0, **fields: Any) -> None:
    """Commit so many events in one transaction."""
    with psycopg.connect(as_emitter(url)) as connection:
        emit(connection, [event(first + each, **fields) for each in range(number)])


def until_published(url: str, number: int, seconds: float = SECONDS) -> None:
    """Return when at least so many rows are out."""
    until(lambda: count(url, PUBLISHED) >= number, f"{number} rows are published", seconds)


def until_drained(url: str, seconds: float = SECONDS) -> None:
    """Return when nothing is pending."""
    until(lambda: count(url, PENDING) == 0, "nothing is pending", seconds)


class Load:
    """Events that keep coming, never more than `ahead` of the relays, until the block ends."""

    def __init__(self, url: str, ahead: int, burst: int = 10) -> None:
        self._url = make_conninfo(url, application_name="load")
        self._ahead, self._burst = ahead, burst
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._emit)
        self._error: BaseException | None = None
        self.emitted = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._end.set()
        self._thread.join()
        if self._error is not None and error is None:
            raise self._error

    def stop(self) -> None:
        """Let no more come; from here on `emitted` is the number of all."""
        self._end.set()
        self._thread.join()

    def _emit(self) -> None:
        try:
            with (
                psycopg.connect(as_emitter(self._url)) as connection,
                psycopg.connect(self._url, autocommit=True) as looking,
            ):
                while not self._end.is_set():
                    row = looking.execute(f"select count(*) from outbox_events where {PENDING}").fetchone()  # noqa: S608
                    if row and row[0] < self._ahead:
                        emit(connection, [event(self.emitted + each) for each in range(self._burst)])
                        self.emitted += self._burst
                    connection.commit()
                    self._end.wait(0.002)
        except BaseException as error:  # noqa: BLE001 -- raised where the block ends
            self._error = error


def dying(relay: Commands, point: Point, nth: int, **others: str) -> AbstractContextManager[Forked]:
    """A relay that kills itself when it passes the point for the nth time."""
    words = ["relay", point.value, str(nth)]
    return _killed_at_last(relay, "tests.chaos.dying_relay:main", words, others, Path(os.devnull))


def logged(relay: Commands, log: Path, **others: str) -> AbstractContextManager[Forked]:
    """A `relay run` that writes its log into a file, however much it is."""
    return _killed_at_last(relay, "relay.__main__:main", ["relay", "run"], others, log)


@contextmanager
def _killed_at_last(
    relay: Commands, program: str, words: list[str], settings: Mapping[str, str], log: Path
) -> Iterator[Forked]:
    with Forked(program, words, env=relay._environment(settings), cwd=relay._folder, log=log) as process:
        try:
            yield process
        finally:
            process.kill()


def until_said(log: Path, *words: str, times: int = 1, seconds: float = SECONDS) -> None:
    """Return when so many lines of the log contain all of the words."""

    def said() -> bool:
        return sum(all(word in line for word in words) for line in log.read_text().splitlines()) >= times

    until(said, f"the log says {' '.join(words)!r}: {log.read_text()[-2000:]}", seconds)


def stop(process: Forked) -> int:
    """Ask a relay to stop; answer with its exit code."""
    process.send_signal(signal.SIGTERM)
    return process.wait(SECONDS)
