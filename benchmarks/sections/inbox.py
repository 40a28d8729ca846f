"""What an inbox receives and finishes in a second: with the SDK, by its statements alone, and queues of others."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import psycopg

from benchmarks.contest import Contestant, ContestError, race, start
from benchmarks.databases import count, database, settle
from benchmarks.environment import ROOT
from benchmarks.figures import Figure, Size
from benchmarks.peers.table import Entrant, workers
from benchmarks.stand import Stand
from consumers.inbox.schema import INBOX
from relay.postgres.schema import Versions

TITLE = "An inbox, with handlers that do nothing"
SECTION, UNIT = "inbox", "deliveries/s"
# What handlers do, and how the bare loop works.
NOTHING, COMPLETE, BATCHES = "nothing", "complete", "batches"
MANY, DEFAULT = "200 at once", "10 at once, the default"
COMPLETED, COMPLETED_MORE = "ctx.complete, 10 at once", "ctx.complete, 30 at once"
BARE, BARE_SMALL = "bare SQL, batches of 500", "bare SQL, batches of 50"
BARE_COMPLETED = "bare inbox_complete, 10 at once"
WORKED, STORED = "worked off", "with storing"
_CONSUMER, _BARE = "benchmarks.inbox_consumer", "benchmarks.inbox_bare"
_QUICKER = 4
_TRIAL = 50
# About two seconds for each.
_JOBS = {"pgqueuer": 24_000, "procrastinate": 2_000}
_LEAST = 500
_EFFECTS = "create table effects (id bigint generated always as identity primary key, event_id uuid not null)"
_ENDS = """
select count(*) filter (where state = 'done' and outcome = 'ok'), count(*),
       (select count(*) from inbox_history), (select count(*) from inbox_leases), (select count(*) from effects)
  from inbox_deliveries
"""

Found = Mapping[str, float]


@dataclass(frozen=True)
class Variant:
    """One way in which deliveries are received, claimed and completed."""

    name: str
    program: str
    kind: str
    deliveries: int  # for about two seconds
    at_once: int

    def measured(self, stand: Stand, quicker: int) -> Callable[[], Found]:
        """What takes one value."""
        return partial(_ours, stand, self, max(_LEAST, self.deliveries // quicker))


VARIANTS = (
    Variant(MANY, _CONSUMER, NOTHING, 20_000, 200),
    Variant(DEFAULT, _CONSUMER, NOTHING, 6_000, 10),
    Variant(BARE, _BARE, BATCHES, 30_000, 500),
    Variant(BARE_SMALL, _BARE, BATCHES, 20_000, 50),
    Variant(COMPLETED, _CONSUMER, COMPLETE, 2_000, 10),
    Variant(COMPLETED_MORE, _CONSUMER, COMPLETE, 2_000, 30),
    Variant(BARE_COMPLETED, _BARE, COMPLETE, 2_000, 10),
)


def measure(stand: Stand, size: Size) -> Iterator[Figure]:
    """Each in turns with the others, so many times; who is compared with a peer stands beside it."""
    able: list[Entrant] = []
    for entrant in workers():
        if why := entrant.missing or _fails(stand, entrant):
            yield Figure(SECTION, _title(entrant), UNIT, skipped=why)
        else:
            able.append(entrant)
    quicker = _QUICKER if size.quick else 1
    ours: list[Callable[[], Found]] = [variant.measured(stand, quicker) for variant in VARIANTS]
    theirs: list[Callable[[], Found]] = [
        partial(_theirs, stand, entrant, max(_LEAST, _JOBS[entrant.peer.package] // quicker)) for entrant in able
    ]
    turns = [*theirs[:1], ours[0], *theirs[1:], *ours[1:]]
    found: dict[str, list[float]] = {variant.name: [] for variant in VARIANTS}
    for number in range(size.rounds):
        for turn in reversed(turns) if number % 2 else turns:
            for name, value in turn().items():
                found.setdefault(name, []).append(value)
    for name, values in found.items():
        yield Figure(SECTION, name, UNIT, tuple(values))


def _ours(stand: Stand, variant: Variant, many: int) -> Found:
    with database(stand, "bench_inbox") as url:
        with psycopg.connect(url) as connection:
            Versions(INBOX).migrate(connection, "public")
            connection.execute(_EFFECTS)
        settle(url)
        command = (variant.program, variant.kind, str(many), str(variant.at_once))
        (found,) = race([stand.start(*command, DATABASE_URL=url)]).answers
        _whole(url, variant, many)
    return {variant.name: found["events"] / found["seconds"]}


def _whole(url: str, variant: Variant, many: int) -> None:
    """Raise ContestError unless the tables say the same as who was measured."""
    with psycopg.connect(url) as connection:
        ends = connection.execute(_ENDS).fetchone()
    wanted = (many, many, 3 * many, 0, many if variant.kind == COMPLETE else 0)
    if ends != wanted:
        raise ContestError(
            f"{variant.name} has left (done, deliveries, history, leases, effects) at {ends} in place of {wanted}"
        )


def _theirs(stand: Stand, entrant: Entrant, many: int) -> Found:
    """The clock is the peer's own."""
    with database(stand, f"bench_inbox_{entrant.peer.stem}") as url:
        (found,) = race([_contestant(stand, entrant, url, many)]).answers
        if left := count(url, entrant.peer.left):
            raise ContestError(f"{entrant.title} has left {left} of {many} jobs")
    return {
        f"{_title(entrant)}, {WORKED}": many / found["worked"],
        f"{_title(entrant)}, {STORED}": many / (found["stored"] + found["worked"]),
    }


def _contestant(stand: Stand, entrant: Entrant, url: str, many: int) -> Contestant:
    contestant = start([*entrant.command, str(many)], {**stand.environment, "DATABASE_URL": url}, ROOT)
    settle(url)
    return contestant


def _fails(stand: Stand, entrant: Entrant) -> str:
    try:
        _theirs(stand, entrant, _TRIAL)
    except (ContestError, psycopg.Error, OSError) as error:
        return f"it does not work here: {error}"
    return ""


def _title(entrant: Entrant) -> str:
    return f"{entrant.peer.package} {entrant.version}".rstrip()
