"""What is claimed of the relay, as ratios of figures of one run: on another machine they hold or fail alike."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum

from benchmarks.figures import Figure
from benchmarks.sections import emit, exports, inbox, retention


class Way(Enum):
    """On which side of its bound a value has to be."""

    AT_LEAST = "≥"
    AT_MOST = "≤"
    BELOW = "<"


@dataclass(frozen=True)
class Bound:
    """What is wanted of a value."""

    way: Way
    value: float
    unit: str = ""

    def __str__(self) -> str:
        return f"{self.way.value} {written(self.value, self.unit)}"

    def holds(self, value: float) -> bool:
        """Whether the value is within."""
        match self.way:
            case Way.AT_LEAST:
                return value >= self.value
            case Way.AT_MOST:
                return value <= self.value
            case Way.BELOW:
                return value < self.value


@dataclass(frozen=True)
class Named:
    """The figure of this name."""

    section: str
    name: str

    def __str__(self) -> str:
        return f"{self.section}: {self.name}"

    def find(self, figures: Iterable[Figure]) -> Figure | None:
        """The figure, if it was measured."""
        found = (figure for figure in figures if (figure.section, figure.name) == (self.section, self.name))
        return next((figure for figure in found if figure.values), None)

    def missing(self, figures: Iterable[Figure]) -> list[str]:
        """Its own name, unless it was measured."""
        return [] if self.find(figures) else [str(self)]


@dataclass(frozen=True)
class OfPackage:
    """The figure of a package in whatever version, that ends with these words."""

    section: str
    package: str
    ending: str

    def __str__(self) -> str:
        return f"{self.section}: {self.package}, {self.ending}"

    def find(self, figures: Iterable[Figure]) -> Figure | None:
        """The figure, if it was measured."""
        found = (figure for figure in figures if figure.section == self.section and figure.values)
        return next((each for each in found if self._is(each.name)), None)

    def missing(self, figures: Iterable[Figure]) -> list[str]:
        """Its own name, unless it was measured."""
        return [] if self.find(figures) else [str(self)]

    def _is(self, name: str) -> bool:
        return name.startswith(f"{self.package} ") and name.endswith(f", {self.ending}")


PEERS = "peers"
RELAY = Named(PEERS, "relay")


@dataclass(frozen=True)
class BestPeer:
    """The fastest of the peers, of all or of those that are written in one language."""

    language: str = ""

    def __str__(self) -> str:
        return f"{PEERS}: the best{f' in {self.language}' if self.language else ''}"

    def find(self, figures: Iterable[Figure]) -> Figure | None:
        """The figure, if any of them was measured."""
        peers = self._peers(figures)
        return max((peer for peer in peers if peer.values), key=lambda peer: peer.median, default=None)

    def missing(self, figures: Iterable[Figure]) -> list[str]:
        """Those that were not measured, of whom one might be better."""
        peers = self._peers(figures)
        return [peer.name for peer in peers if not peer.values] if peers else [str(self)]

    def _peers(self, figures: Iterable[Figure]) -> list[Figure]:
        ending = f"({self.language})" if self.language else ")"
        return [figure for figure in figures if figure.section == PEERS and figure.name.endswith(ending)]


@dataclass(frozen=True)
class Claim:
    """One sentence that the figures of a run bear out, or do not."""

    name: str
    wanted: Bound
    of: Named
    over: Named | OfPackage | BestPeer | None = None  # without it, the figure itself is what is bounded

    def judge(self, figures: Sequence[Figure]) -> "Ratio":
        """What was reached."""
        of, over = self.of.find(figures), self.over.find(figures) if self.over else None
        missing = self.of.missing(figures) + (self.over.missing(figures) if self.over else [])
        rounds = () if of is None or (self.over and not over) else paired(of, over) if over else of.values
        return Ratio(
            name=self.name,
            wanted=str(self.wanted),
            unit=self.wanted.unit,
            of=str(self.of),
            over=f"{over.section}: {over.name}" if over else str(self.over or ""),
            rounds=tuple(rounds),
            verdict=verdict(self.wanted, rounds),
            missing=", ".join(missing),
        )


class Verdict(StrEnum):
    """What a run says about a bound: the median decides, and rounds on either side of it are told."""

    REACHED = "reached"
    REACHED_IN_NOISE = "reached, within the noise"
    NOT_REACHED_IN_NOISE = "not reached, within the noise"
    NOT_REACHED = "not reached"
    NOT_MEASURED = "not measured"

    @property
    def reached(self) -> bool:
        """Whether the median is within the bound."""
        return self in {Verdict.REACHED, Verdict.REACHED_IN_NOISE}


def verdict(wanted: Bound, rounds: Sequence[float]) -> Verdict:
    """What these rounds say about it."""
    if not rounds:
        return Verdict.NOT_MEASURED
    alike = len(set(map(wanted.holds, rounds))) == 1
    if wanted.holds(statistics.median(rounds)):
        return Verdict.REACHED if alike else Verdict.REACHED_IN_NOISE
    return Verdict.NOT_REACHED if alike else Verdict.NOT_REACHED_IN_NOISE


@dataclass(frozen=True)
class Ratio:
    """What a claim came to."""

    name: str
    wanted: str
    unit: str
    of: str
    over: str
    rounds: tuple[float, ...]
    verdict: Verdict
    missing: str = ""  # the figures without which nothing can be said, or the peers that are not among the others

    @property
    def median(self) -> str:
        """The one in the middle, with its unit."""
        return written(statistics.median(self.rounds), self.unit) if self.rounds else ""

    @property
    def range(self) -> str:
        """The least and the greatest of the rounds, where there are several."""
        return f"{min(self.rounds):.3g} to {max(self.rounds):.3g}" if len(self.rounds) > 1 else ""

    def __str__(self) -> str:
        told = [f"it is {', '.join(filter(None, (self.median, self.range)))}"] if self.rounds else []
        told += [f"without {self.missing}"] if self.missing else []
        return f"{self.verdict}: {self.name} {self.wanted} ({'; '.join(told)})"


def paired(of: Figure, over: Figure) -> tuple[float, ...]:
    """The ratio of each round: what slows the machine down for a while slows both. Without pairs, that of medians."""
    if len(of.values) != len(over.values) or not all(over.values):
        return (of.median / over.median,)
    return tuple(one / other for one, other in zip(of.values, over.values, strict=True))


def written(value: float, unit: str) -> str:
    """A value with its unit, as one reads it aloud."""
    return f"{value:.3g} {unit}".rstrip()


def judged(figures: Sequence[Figure], claims: "Sequence[Claim] | None" = None) -> list[Ratio]:
    """All claims."""
    return [claim.judge(figures) for claim in (CLAIMS if claims is None else claims)]


def _named(section: str) -> Callable[[str], Named]:
    return lambda name: Named(section, name)


_drain, _latency, _emit, _growth, _retention, _exports, _memory, _consume, _inbox = map(
    _named, ("drain", "latency", "emit", "growth", "retention", "exports", "memory", "consume", "inbox")
)
_LEAST, _MOST, _BELOW = Way.AT_LEAST, Way.AT_MOST, Way.BELOW

CLAIMS = (
    Claim("a backlog, beside the limit of this machine", Bound(_LEAST, 0.9), _drain("400 B"), _drain("limit, 400 B")),
    Claim("a backlog of 100 B, beside the limit", Bound(_LEAST, 0.9), _drain("100 B"), _drain("limit, 100 B")),
    Claim("a backlog of 4 KB, beside the limit", Bound(_LEAST, 0.9), _drain("4 KB"), _drain("limit, 4 KB")),
    Claim("a backlog, beside the best peer", Bound(_LEAST, 2.5), RELAY, BestPeer()),
    Claim("a backlog, beside the best peer in Python", Bound(_LEAST, 5), RELAY, BestPeer("Python")),
    Claim(
        "1,000 deep keys, beside rows without a key", Bound(_LEAST, 0.5), _drain("400 B, 1,000 keys"), _drain("400 B")
    ),
    Claim(
        "latency at 200/s, p50, beside a bare LISTEN loop",
        Bound(_MOST, 1.5),
        _latency("relay 200/s p50"),
        _latency("listen 200/s p50"),
    ),
    Claim(
        "latency at 200/s, p99, beside a bare LISTEN loop",
        Bound(_MOST, 2),
        _latency("relay 200/s p99"),
        _latency("listen 200/s p99"),
    ),
    Claim("latency at 2,000/s, p99", Bound(_BELOW, 20, "ms"), _latency("relay 2,000/s p99")),
    Claim(
        "a backlog beside 10 M published rows, beside an empty table",
        Bound(_LEAST, 0.9),
        _growth("10 M published"),
        _growth("empty"),
    ),
    *(
        Claim(f"a drain {name}, beside one alone", Bound(_LEAST, 0.85), _retention(name), _retention(retention.ALONE))
        for name in (retention.NOWHERE, retention.ARCHIVE)
    ),
    Claim(
        "latency at 200/s, p99, beside an export",
        Bound(_MOST, 1.5),
        _exports(f"{exports.BESIDE} p99"),
        _exports(f"{exports.ALONE} p99"),
    ),
    *(
        Claim(
            f"{name}, beside a bare INSERT, by {driver}", bound, _emit(f"{driver}, {ours}"), _emit(f"{driver}, {bare}")
        )
        for name, bound, ours, bare in (
            ("emit in a transaction of its own", Bound(_MOST, 1.3), emit.EMIT, emit.BARE),
            ("emit of 1,000 events", Bound(_MOST, 1.5), emit.BULK_EMIT, emit.BULK_BARE),
        )
        for driver in emit.DRIVERS
    ),
    Claim("resident memory, 400 B backlog", Bound(_MOST, 120, "MB"), _memory("resident, 400 B backlog")),
    Claim("resident memory, 9 MB rows", Bound(_MOST, 400, "MB"), _memory("resident, 9 MB rows among 100 B")),
    Claim("CPU of an idle relay", Bound(_MOST, 0.2, "% of a core"), Named("idle", "cpu")),
    Claim("a consumer without deduplication", Bound(_LEAST, 25_000, "messages/s"), _consume("none")),
    Claim("a consumer that claims", Bound(_LEAST, 10_000, "messages/s"), _consume("claim")),
    Claim(
        "check_and_mark_processed, beside its script alone",
        Bound(_LEAST, 0.9),
        _consume("check_and_mark_processed"),
        _consume("its script alone"),
    ),
    Claim("a consumer with an inbox", Bound(_LEAST, 5_000, "deliveries/s"), _inbox(inbox.MANY)),
    *(
        Claim(
            f"a consumer with an inbox, beside {package} that only works off",
            Bound(_LEAST, least),
            _inbox(inbox.MANY),
            OfPackage("inbox", package, inbox.WORKED),
        )
        for package, least in (("procrastinate", 3), ("pgqueuer", 0.25))
    ),
)
