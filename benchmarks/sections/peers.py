"""The same backlog, drained by the relay and by others: each with its own table, into the same emulator, in turns."""

from collections.abc import Callable, Iterator
from functools import partial

import psycopg

from benchmarks.contest import ContestError, start
from benchmarks.databases import count, database, settle
from benchmarks.drains import UNIT, Backlog, Task, drain, warm_up
from benchmarks.environment import ROOT
from benchmarks.figures import Figure, Size, in_turns
from benchmarks.peers.table import PEERS, Entrant, Peer, entrants
from benchmarks.stand import Stand

TITLE = "A backlog of others, 400 B"
RELAY = "relay"
_SECONDS = 3  # about as long as a drain takes: who is slow is given fewer events
_TRIAL = 500  # all of which are read
_WARM_UP, _QUICK_WARM_UP = 100_000, 50_000


def measure(stand: Stand, size: Size) -> Iterator[Figure]:
    """Drain with the relay and with every peer that is installed and works, so many times."""
    able: list[Entrant] = []
    for entrant in entrants():
        if why := entrant.missing or _fails(stand, entrant):
            yield Figure("peers", entrant.title, UNIT, skipped=why)
        else:
            able.append(entrant)
    if not able:
        yield Figure("peers", RELAY, UNIT, skipped="there is nobody to compare it with")
        return
    warm_up(stand, _QUICK_WARM_UP if size.quick else _WARM_UP)
    # As many as the fastest peer: what the emulator holds slows it down.
    events = max(events_for(peer, size) for peer in PEERS)
    kinds: dict[str, Callable[[], float]] = {RELAY: partial(drain, stand, Backlog(events))}
    for entrant in able:
        kinds[entrant.title] = partial(drain_peer, stand, entrant, events_for(entrant.peer, size))
    for name, values in in_turns(size.rounds, kinds, warm=[RELAY]).items():
        yield Figure("peers", name, UNIT, values)


def events_for(peer: Peer, size: Size) -> int:
    """How many events it is given; only the rate counts."""
    return min(size.events, _SECONDS * peer.expected)


def drain_peer(stand: Stand, entrant: Entrant, events: int, *, all_read: bool = False) -> float:
    """Let a peer publish a new backlog of its own; answer with the events a second.

    Its seconds end with the last message that the broker took: how long it takes to come to an end is not counted.
    """
    with database(stand, f"bench_peer_{entrant.peer.stem}") as url:
        asked = Task(
            entrant.title,
            Backlog(events),
            enter=lambda topic: [start([*entrant.command, topic, str(events)], _environment(stand, url), ROOT)],
            fill=partial(settle, url),
            left=partial(count, url, entrant.peer.left),
        )
        try:
            (found,) = asked.timed(stand, all_read=all_read).answers
        except ValueError as error:
            raise ContestError(f"{entrant.title} answered with something else than JSON") from error
    return float(events / found["seconds"])


def _environment(stand: Stand, url: str) -> dict[str, str]:
    return {**stand.environment, "DATABASE_URL": url}


def _fails(stand: Stand, entrant: Entrant) -> str:
    try:
        drain_peer(stand, entrant, _TRIAL, all_read=True)
    except (ContestError, psycopg.Error, OSError) as error:
        return f"it does not work here: {error}"
    return ""
