"""Runs the tests in a random order, so that one that needs another to have run before it shows.

Modules are shuffled, and the tests of a module among themselves: what a module's fixtures made is made once. Tests
that are marked `alone` come last, when nothing else runs.
"""

import random
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

_SEEDS = 2**32
_WITH_REASON = {"slow", "alone"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--seed` repeats the order of another run."""
    parser.addoption("--seed", type=int, help="run the tests in the order that a run with this seed had")


def pytest_configure(config: pytest.Config) -> None:
    """Choose the seed, unless the command line or the process that gives out the tests has."""
    given = getattr(config, "workerinput", {}).get("seed", config.getoption("--seed"))
    config.stash[SEED] = random.randrange(_SEEDS) if given is None else given  # noqa: S311 -- no secret


SEED = pytest.StashKey[int]()


def pytest_report_header(config: pytest.Config) -> str:
    """Say how to have this order again."""
    return f"order: --seed={config.stash[SEED]}"


@pytest.hookimpl(tryfirst=True)  # pytest itself then puts tests together that share a parameter of a module's fixture
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Shuffle; and have every mark say why."""
    for item in items:
        for mark in item.iter_markers():
            if mark.name in _WITH_REASON and not (
                len(mark.args) == 1 and isinstance(mark.args[0], str) and mark.args[0]
            ):
                raise pytest.UsageError(f'{item.nodeid}: write @pytest.mark.{mark.name}("why")')
    items[:] = shuffled(items, config.stash[SEED])


def shuffled(items: Iterable[pytest.Item], seed: int) -> list[pytest.Item]:
    """Put the items in the order that belongs to the seed."""
    order = random.Random(seed)  # noqa: S311 -- the same
    modules: defaultdict[Path, list[pytest.Item]] = defaultdict(list)
    for item in items:
        modules[item.path].append(item)
    found = list(modules.values())
    order.shuffle(found)
    for module in found:
        order.shuffle(module)
    every = [item for module in found for item in module]
    return sorted(every, key=lambda item: item.get_closest_marker("alone") is not None)
