"""What a job has done about archives, in a process of its own: `relay` and `consumers` go on undisturbed meanwhile.

To make a Parquet file takes a core for as long as it lasts, and Python lets one thread at a time have a go. So it is
done by a child that is nice to all others, whose memory is gone when it ends, and which ends when its parent does.

It is told its errand by one line of JSON, and ends when its input does; it answers with lines of JSON.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Literal

import psycopg

from relay.errors import ArchiveError, ConfigurationError, RelayError
from relay.kernel.failure import told, told_of_database
from relay.postgres.connect import connect
from relay.upkeep.archive.archive import Archive, Done
from relay.upkeep.archive.lock import ArchiveBusyError
from relay.upkeep.archive.place import Place
from relay.upkeep.archive.store import PlaceAwayError, UnusablePlaceError
from relay.upkeep.archive.watch import StoppedError, Watch

What = Literal["export", "drop"]
# To the scheduler of this machine: whoever else wants a core has it.
_NICE = 19
_END_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Address:
    """Where archives are, as it is told to a child."""

    url: str
    app: str
    schema: str
    place: Place

    @property
    def archive(self) -> Archive:
        """What works there."""
        return Archive(lambda: connect(self.url, self.app), self.schema, self.place)


@dataclass(frozen=True, slots=True)
class Errand:
    """What is to be done, of all tables or of one."""

    what: What
    table: str | None
    address: Address

    def written(self) -> str:
        """As a line."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, line: str) -> "Errand":
        """The same again."""
        said = json.loads(line)
        address = said["address"]
        return cls(said["what"], said["table"], Address(**{**address, "place": Place(**address["place"])}))


class Words:
    """What is said to the parent. Whatever else is printed goes to the log."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)

    def say(self, **word: Any) -> None:
        """A line; none where nobody is there any more, whose end was heard of."""
        with suppress(BrokenPipeError):
            self._out.write(json.dumps(word) + "\n")


def main() -> None:
    """Do the errand that the input names."""
    os.nice(_NICE)
    parent = os.getppid()
    words = Words()
    errand = Errand.read(sys.stdin.readline())
    stopping = threading.Event()
    threading.Thread(target=_listen, args=(stopping, parent), daemon=True).start()
    try:
        words.say(done=_Work(errand, words, stopping).done())
    except (RelayError, psycopg.Error) as error:
        words.say(failed=_told(error))


class _Work:
    def __init__(self, errand: Errand, words: Words, stopping: threading.Event) -> None:
        self._errand = errand
        self._words = words
        self._stopping = stopping
        self._archive = errand.address.archive

    def done(self) -> int:
        """How many files, or tables; what is wrong with one of several does not keep the others."""
        self._archive.require()
        what, table = self._errand.what, self._errand.table
        count = 0
        origins = self._archive.origins(table)
        failed: list[tuple[str, str]] = []
        for origin in origins:
            if self._stopping.is_set():
                break
            try:
                done = self._of(origin)
            except ArchiveBusyError:
                # Whoever has it in hand does the work.
                self._words.say(count=["archives_busy", 1])
            except (RelayError, psycopg.Error) as error:
                if len(origins) == 1 or isinstance(error, (UnusablePlaceError, PlaceAwayError)):
                    raise
                failed.append(_told(error))
                self._words.say(fault=[*failed[-1], f"{what} of {origin}"])
            else:
                count += len(done.dropped) if what == "drop" else done.files
                for fault in done.faults:
                    self._words.say(fault=[*_told(fault), f"{what} of {origin}"])
                if done.faults and not done.any:
                    failed.append(_told(done.faults[-1]))
        if failed and len(failed) == len(origins):
            raise _in_vain(what, failed)
        return count

    def _of(self, origin: str) -> Done:
        work: Callable[..., Done] = self._archive.drop if self._errand.what == "drop" else self._archive.export
        return work(origin, watch=Watch(self._check, count=lambda name, by: self._words.say(count=[name, by])))

    def _check(self) -> None:
        if self._stopping.is_set():
            raise StoppedError


def _listen(stopping: threading.Event, parent: int) -> None:
    """The end of the input is that of the job, or of its process, behind which nothing stays."""
    while os.read(sys.stdin.fileno(), 1_024):
        pass
    stopping.set()
    while os.getppid() == parent:
        time.sleep(_END_SECONDS)
    # What waits for the database or for the place hears of nothing; it may be killed at any instruction.
    time.sleep(_END_SECONDS)
    os._exit(1)


def _in_vain(what: What, failed: list[tuple[str, str]]) -> RelayError:
    """Nothing was achieved, and so it is no fault beside what was, but the end of the run."""
    kind, text = failed[-1]
    said = f"{what} failed for all {len(failed)} table(s), the last time with: {text}"
    return ConfigurationError(said) if kind == "configuration" else ArchiveError(said)


def _told(error: Exception) -> tuple[str, str]:
    """Of what kind it is to a job, and its sentence."""
    if isinstance(error, psycopg.Error):
        return "archive", told_of_database(error)
    return ("configuration" if isinstance(error, ConfigurationError) else "archive"), told(error)
