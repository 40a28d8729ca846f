"""A backlog that is drained, and what must be true of it afterwards."""

from dataclasses import dataclass

from benchmarks.backlog import empty, fill, pending, settle
from benchmarks.contest import ContestError, race
from benchmarks.stand import Stand

RELAY = "benchmarks.relay_drain"
LIMIT = "benchmarks.limit"
UNIT = "events/s"


@dataclass(frozen=True)
class Backlog:
    """The events that wait."""

    rows: int
    size: int = 400  # bytes of data in each
    keys: int = 0


def drain(stand: Stand, backlog: Backlog, program: str = RELAY, processes: int = 1) -> float:
    """Let a program, or several of it, publish a new backlog; answer with the events a second."""
    empty(stand.database_url)
    fill(stand.database_url, backlog.rows, backlog.size, backlog.keys)
    settle(stand.database_url)
    with stand.topic(backlog.rows) as topic:
        answers, seconds = race([stand.start(program, topic) for _ in range(processes)])
    published, left = sum(answer["events"] for answer in answers), pending(stand.database_url)
    if (published, left) != (backlog.rows, 0):
        raise ContestError(f"{program} published {published} of {backlog.rows} events and left {left} of them pending")
    return backlog.rows / seconds


def warm_up(stand: Stand, events: int) -> None:
    """A new emulator, which compiles what it will run: it is slower at first, whoever is measured."""
    stand.renew()
    drain(stand, Backlog(events), LIMIT)
