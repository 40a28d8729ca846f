"""Runs the tests in a random order, so that one that needs another to have run before it shows.

Modules are shuffled, and the tests of a module among themselves: what a module's fixtures made is made once. Tests
that are marked `alone` come last, when nothing else runs.
"""

import random
from collections import defaultdict
from collections.abc import Generator, Iterable
from typing import Any

import pytest

_SEEDS = 2**32
_WITH_REASON = {"slow", "alone"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--seed` repeats the order of another run."""
    parser.addoption(
        "--seed", type=int, help="run the tests in the order that a run with this seed had; 0: as they are collected"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Choose the seed, unless the command line or the process that gives out the tests has."""
    given = getattr(config, "workerinput", {}).get("seed", config.getoption("--seed"))
    config.stash[SEED] = random.randrange(1, _SEEDS) if given is None else given  # noqa: S311 -- no secret


SEED = pytest.StashKey[int]()


def pytest_report_header(config: pytest.Config) -> str:
    """Say how to have this order again."""
    return f"order: --seed={config.stash[SEED]}"


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, Any, Any]:
    """Have every mark say why: a module in which one does not is one that cannot be collected."""
    report = yield
    for item in report.result or ():
        for mark in item.iter_markers() if isinstance(item, pytest.Item) else ():
            if mark.name in _WITH_REASON and not (mark.args and isinstance(mark.args[0], str) and mark.args[0]):
                report.outcome, report.result = "failed", []
                report.longrepr = f'{item.nodeid}: write @pytest.mark.{mark.name}("why")'
                return report
    return report


@pytest.hookimpl(tryfirst=True)  # pytest itself then puts tests together that share a parameter of a module's fixture
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Shuffle."""
    items[:] = shuffled(items, config.stash[SEED])


def shuffled(items: Iterable[pytest.Item], seed: int) -> list[pytest.Item]:
    """Put the items in the order that belongs to the seed. A module's own is the same whatever runs beside it."""
    modules: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        modules[item.nodeid.partition("::")[0]].append(item)
    names = list(modules)
    if seed:
        random.Random(seed).shuffle(names)  # noqa: S311 -- the same
        for name, module in modules.items():
            random.Random(f"{seed} {name}").shuffle(module)  # noqa: S311 -- the same
    every = [item for name in names for item in modules[name]]
    return sorted(every, key=lambda item: item.get_closest_marker("alone") is not None)
