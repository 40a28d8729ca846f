"""How long after its commit an event is taken by the broker: of the relay, and of a bare loop that is told of each."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial

import psycopg

from benchmarks import backlog
from benchmarks.contest import ContestError
from benchmarks.drains import warm_up
from benchmarks.emitter import EMIT
from benchmarks.figures import Figure, Size
from benchmarks.listen_loop import TELL_ALWAYS, TELL_NO_MORE
from benchmarks.stand import Stand

TITLE = "Latency: from the commit to the broker's answer"
SECTION, UNIT = "latency", "ms"
# The first events of a run are not counted.
WARM_SECONDS = 1
QUANTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
# So many events at least took longer than a quantile of them.
LEAST_BEYOND = 5
# A pace is held where the median event was stored no later than that.
LATE_SECONDS = 0.1
# So long after the last commit everything is published, or something is wrong.
LAST_SECONDS = 20.0


@dataclass(frozen=True)
class Pace:
    """How many events a second are stored, and for how long."""

    rate: int
    seconds: int


PACES = (Pace(10, 20), Pace(200, 10), Pace(2_000, 10))
QUICK = (Pace(200, 4),)
# The pace at which both are compared.
BESIDE = 200
_WARM_UP = 20_000  # events, for an emulator that has run nothing yet

Found = Mapping[str, float | str]


def measure(stand: Stand, size: Size) -> Iterator[Figure]:
    """Measure both, in turns."""
    warm_up(stand, _WARM_UP)
    told_always = partial(_told_always, stand.database_url)
    for pace in QUICK if size.quick else PACES:
        found: dict[str, list[Found]] = {"relay": [], "listen": []}
        turns: list[tuple[str, str, Callable[[], AbstractContextManager[None]]]] = [
            ("relay", "benchmarks.relay_latency", nullcontext),
            ("listen", "benchmarks.listen_loop", told_always),
        ]
        for number in range(size.most_rounds if pace.rate == BESIDE else size.rounds):
            for who, program, around in reversed(turns) if number % 2 else turns:
                found[who].append(run(stand, pace, program, around))
        for who, rounds in found.items():
            yield from figures(SECTION, f"{who} {pace.rate:,}/s", rounds)


def run(
    stand: Stand,
    pace: Pace,
    program: str,
    around: Callable[[], AbstractContextManager[None]] = nullcontext,
    **environment: str,
) -> Found:
    """Let one of them publish what comes at this pace."""
    backlog.empty(stand.database_url)
    with stand.topic() as topic, around():
        publishing = stand.start(program, topic.name, **environment)
        try:
            topic.taken()
            publishing.go()
            _awake(stand.database_url)
            emitter = stand.start("benchmarks.emitter", str(pace.rate), str(pace.seconds))
            emitter.go()
            stored = emitter.answer()
            _all_published(stand.database_url)
            publishing.go()
            acked = publishing.answer()["acked"]
        except BaseException:  # Ctrl-C, too, leaves no process behind
            publishing.end()
            raise
        if (taken := topic.taken()) < len(stored["committed"]):
            raise ContestError(f"{program} published {len(acked)} events, and the broker has had {taken} messages")
    return quantiles(stored["committed"], acked, stored["began"], pace)


def quantiles(committed: Mapping[str, int], acked: Mapping[str, int], began: int, pace: Pace) -> Found:
    """In milliseconds; a sentence where there is none."""
    late = sorted(moment - began - int(number) * 1e9 / pace.rate for number, moment in committed.items())
    if late[len(late) // 2] > LATE_SECONDS * 1e9:
        held = len(committed) / (max(committed.values()) - began) * 1e9
        return dict.fromkeys(QUANTILES, f"the emitter did not hold the pace: {held:.0f} events/s")
    counted = [number for number in committed if int(number) >= WARM_SECONDS * pace.rate]
    if lost := len(committed.keys() - acked.keys()):
        raise ContestError(f"{lost} of {len(committed)} events were marked, and nobody noted that the broker had them")
    took = sorted((acked[number] - committed[number]) / 1e6 for number in counted)
    return {name: quantile(took, share) for name, share in QUANTILES.items()}


def quantile(ordered: Sequence[float], share: float) -> float | str:
    """The least of those that so many are not above; a sentence where none is above it."""
    place = int(share * len(ordered))
    if len(ordered) - place - 1 < LEAST_BEYOND:
        return f"{len(ordered)} events are too few"
    return ordered[place]


def figures(section: str, name: str, rounds: Sequence[Found]) -> Iterator[Figure]:
    """A figure of each quantile."""
    for quantile_name in QUANTILES:
        values = [found[quantile_name] for found in rounds]
        numbers = tuple(value for value in values if isinstance(value, float))
        reasons = [value for value in values if isinstance(value, str)]
        skipped = "" if numbers else reasons[0]
        yield Figure(section, f"{name} {quantile_name}", UNIT, numbers, skipped)


def _awake(url: str) -> None:
    """Return when whoever publishes is at work, and has published the first event."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(EMIT, {"number": -1})
    _all_published(url)


def _all_published(url: str) -> None:
    deadline = time.monotonic() + LAST_SECONDS
    while backlog.pending(url):
        if time.monotonic() > deadline:
            raise ContestError(f"{backlog.pending(url)} events are not published {LAST_SECONDS:.0f} s later")
        time.sleep(0.1)


@contextmanager
def _told_always(url: str) -> Iterator[None]:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(TELL_ALWAYS.encode())
        try:
            yield
        finally:
            connection.execute(TELL_NO_MORE.encode())
