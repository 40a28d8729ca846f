"""Gives the tests to several processes, and those that measure time to one of them alone, at the end.

Each process starts servers of its own. It is given a few tests of a module at a time, or the whole module where a
fixture of the module is made for all of them.
"""

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests.plugins.order import SEED

ALONE, WHOLE = "alone", "whole"
# A process that is given its last tests runs on while the others have ended: few enough to make that short.
_TESTS = 8
# A process begins with a test when it knows the next: a part of one test alone would have it wait.
_AHEAD = 3
# Tests wait now and then: one process more than there are cores leaves none of them idle; more cost more servers.
_MORE, _MOST = 1, 16


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """How many processes; none but this one for single files, which end before others have started."""
    if not config.args or all(".py" in each for each in config.args):
        return 0
    # Two processes on one server would see each other's transactions.
    if any(os.environ.get(name) for name in ("TEST_DATABASE_URL", "TEST_REDIS_URL")):
        return 0
    return min(_cores() + _MORE, _MOST)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    """Have each process put the tests in the same order."""
    node.workerinput["seed"] = node.config.stash[SEED]


@pytest.hookimpl(tryfirst=True)  # xdist then puts the marks behind the names
def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    """Tell the process that gives out the tests, which knows nothing but their names, what must stay together."""
    for item in items:
        if item.get_closest_marker(ALONE):
            item.add_marker(pytest.mark.xdist_group(ALONE))
        elif not item.get_closest_marker("xdist_group") and _has_fixtures_of_its_module(item):
            item.add_marker(pytest.mark.xdist_group(WHOLE))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Show the name that pytest takes: without what was said by `pytest_collection_modifyitems`."""
    report.nodeid = _name(report.nodeid)[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> "SideBySide":
    """Give them out in the order in which they were collected."""
    config.option.loadscopereorder = False
    return SideBySide(config, log)


class SideBySide(LoadScopeScheduling):
    """Hands out parts of modules. When nothing else is left, all processes end but one, which runs the rest alone."""

    collection: Sequence[str] | None
    _part_of: Mapping[str, str]

    def schedule(self) -> None:
        """Begin; or go on, with a process that stands in for one that died."""
        if self.collection is None:
            if not self._check_nodes_have_same_collection():
                return
            self.collection = next(iter(self.registered_collections.values()))
            self._part_of = parts_of(self.collection)
            for name in sorted(self.collection, key=_place):
                self.workqueue.setdefault(self._part_of[name], {})[name] = False
        for node in self.nodes * _AHEAD:
            self._reschedule(node)

    def remove_node(self, node: WorkerController) -> str | None:
        """Forget a process that has ended; the last may have waited for that."""
        crashed: str | None = super().remove_node(node)
        for each in self.nodes:
            self._reschedule(each)
        return crashed

    def _split_scope(self, nodeid: str) -> str:
        return self._part_of[nodeid]

    def _reschedule(self, node: WorkerController) -> None:
        if ALONE in self.workqueue:
            self.workqueue.move_to_end(ALONE)  # what a process had that died has been put behind it
        if list(self.workqueue) != [ALONE]:
            super()._reschedule(node)
        elif any(each is not node and not each.shutting_down for each in self.nodes):
            node.shutdown()  # it runs what it was given, and ends
        elif self.nodes == [node] and not node.shutting_down:
            self._assign_work_unit(node)


def parts_of(names: Iterable[str]) -> dict[str, str]:
    """Which part each test belongs to; the tests of a part go to one process."""
    parts, tests = {}, Counter[str]()
    for name in names:
        plain, group = _name(name)
        module = plain.partition("::")[0]
        if group in (WHOLE, ""):
            parts[name] = f"{module} {'' if group else tests[module] // _TESTS}"
            tests[module] += not group
        else:
            parts[name] = group
    return parts


def _cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _place(name: str) -> int:
    """What takes long comes first: at the end all processes should be at work, until all have ended."""
    return {"": 1, ALONE: 2}.get(_name(name)[1], 0)


def _name(nodeid: str) -> tuple[str, str]:
    """A test's name, and the group that xdist writes behind it."""
    found = re.fullmatch(r"(.*?)(?:@(\w+))?", nodeid, re.DOTALL)
    assert found
    return found[1], found[2] or ""


def _has_fixtures_of_its_module(item: pytest.Item) -> bool:
    if not isinstance(item, pytest.Function):
        return False
    used = item._fixtureinfo.name2fixturedefs
    return any(each.scope in ("class", "module", "package") for each in (found[-1] for found in used.values() if found))
