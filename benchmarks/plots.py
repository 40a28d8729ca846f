"""The pictures of docs/performance.md, from the figures of the latest run."""

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from benchmarks.figures import Figure
from benchmarks.record import Run, latest
from benchmarks.report import number
from benchmarks.svg import Bar, Group, bars

_AT_A_RATE = re.compile(r"(?P<who>.+) (?P<rate>[\d,]+/s) (?P<share>p[\d.]+|max)")


def drawn(run: Run | None = None) -> dict[str, str]:
    """Each picture by the name of its file."""
    run = run or latest()
    return {f"{name}.svg": draw(run) for name, draw in _PICTURES.items()}


def drain(run: Run) -> str:
    """How fast a backlog goes out, beside the limit."""
    return _picture("Draining a backlog", run.of("drain"), lambda figure: not figure.name.startswith("limit"))


def peers(run: Run) -> str:
    """The relay and others, the fastest first."""
    fastest_first = sorted(run.of("peers"), key=lambda figure: -figure.median)
    return _picture("The same backlog, by the relay and by others", fastest_first, _is_the_relay)


def latency(run: Run) -> str:
    """From commit to the subscriber, by rate; figures whose names tell no rate have no place here."""
    found = [(match, figure) for figure in run.of("latency") if (match := _AT_A_RATE.fullmatch(figure.name))]
    groups = [
        Group(
            [_bar(figure, f"{match['who']} {match['share']}", ours=_is_the_relay(figure)) for match, figure in rate],
            head,
        )
        for head, rate in groupby(found, key=lambda each: each[0]["rate"])
    ]
    return bars("Latency by rate of events", _unit(figure for _, figure in found), groups)


def growth(run: Run) -> str:
    """What lies beside a backlog, and what it costs."""
    return _picture("Draining a backlog beside what is published", run.of("growth"), lambda _: True)


_PICTURES: dict[str, Callable[[Run], str]] = {"drain": drain, "peers": peers, "latency": latency, "growth": growth}


def _picture(title: str, figures: Sequence[Figure], ours: Callable[[Figure], bool]) -> str:
    shown = [_bar(figure, figure.name, ours=ours(figure)) for figure in figures]
    return bars(title, _unit(figures), [Group(shown)] if shown else [])


def _bar(figure: Figure, label: str, *, ours: bool) -> Bar:
    return Bar(label, figure.median, min(figure.values), max(figure.values), number(figure.median), ours)


def _is_the_relay(figure: Figure) -> bool:
    return figure.name.startswith("relay")


def _unit(figures: Iterable[Figure]) -> str:
    return next((figure.unit for figure in figures), "")
