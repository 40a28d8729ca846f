"""Gives the tests to several processes, and those that measure time to one of them alone, at the end.

Each process starts servers of its own. It is given a few tests of a module at a time, or the whole module where a
fixture of the module is made for all of them.
"""

import os
import re
from collections import Counter, deque
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests.plugins.order import SEED

ALONE, WHOLE = "alone", "whole"
# Servers of the user's own.
_SERVERS = ("TEST_DATABASE_URL", "TEST_REDIS_URL")
# The tests of a module that a process is given at once: the fewer, the shorter one runs when all others have ended.
_TESTS = 8
# A process begins with a test when it knows the next: it is given several parts ahead, as one may be a single test.
_AHEAD = 3
# One process more than there are cores, because tests sometimes wait; still more cost more servers than they gain.
_MORE, _MOST = 1, 16
# The number of tests that are named as having run before one that failed.
_BEFORE = 20
_RAN = pytest.StashKey[deque[str]]()


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """How many processes; none but this one for single files, which end before others have started."""
    if all(each.partition("::")[0].endswith(".py") for each in config.args):
        return 0
    # Two processes on one server would see each other's transactions.
    if any(os.environ.get(name) for name in _SERVERS):
        return 0
    return min(_cores() + _MORE, _MOST)


def pytest_configure(config: pytest.Config) -> None:
    """Refuse what several processes would do without a word."""
    if not config.getoption("tx"):
        return
    if given := [name for name in _SERVERS if os.environ.get(name)]:
        raise pytest.UsageError(f"{given[0]} names one server, which several processes cannot share: leave out -n")
    for each in config.args:
        if not (config.invocation_params.dir / each.partition("::")[0]).exists():
            raise pytest.UsageError(f"{each}: there is no such file or folder")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    """Have each process put the tests in the same order."""
    node.workerinput["seed"] = node.config.stash[SEED]


@pytest.hookimpl(tryfirst=True)  # xdist then puts the marks behind the names
def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    """Tell the process that gives out the tests, which knows nothing but their names, what must stay together."""
    for item in items:
        if item.get_closest_marker(ALONE):
            assert not item.get_closest_marker("xdist_group"), f"{item.nodeid} has a group, so it cannot run alone"
            item.add_marker(pytest.mark.xdist_group(ALONE))
        elif not item.get_closest_marker("xdist_group") and _has_fixtures_of_its_module(item):
            item.add_marker(pytest.mark.xdist_group(WHOLE))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Say of a test that fails what ran before it in the same process: it may be the reason."""
    report = yield
    ran = item.config.stash.setdefault(_RAN, deque(maxlen=_BEFORE + 1))
    if call.when == "setup":
        ran.append(_name(item.nodeid)[0])
    if report.failed:
        report.sections.append(("Ran before it in this process", "\n".join(list(ran)[:-1])))
        ran[-1] += " FAILED"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """Make every text of a report one that can be sent: a text that is no Unicode would end the run."""
    return _that_travels((yield))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Show the name that pytest takes: without what was said by `pytest_collection_modifyitems`."""
    report.nodeid = _name(report.nodeid)[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> "SideBySide":
    """Give out the tests as SideBySide does."""
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
        """Forget a process that has ended; the last may have waited for that.

        Returns the test in which it died. What it was to run behind that, others run.
        """
        parts = self.assigned_work.pop(node)
        left = [name for tests in parts.values() for name, ran in tests.items() if not ran]
        for name in left[1:]:
            self.workqueue.setdefault(self._part_of[name], {})[name] = False
        for each in self.nodes:
            self._reschedule(each)
        return left[0] if left else None

    def _split_scope(self, nodeid: str) -> str:
        return self._part_of[nodeid]

    def _reschedule(self, node: WorkerController) -> None:
        if node not in self.registered_collections:
            return  # it stands in for one that died, and collects
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


def _that_travels(said: Any) -> Any:
    match said:
        case str():
            return said if said.isascii() else said.encode("utf-8", "backslashreplace").decode()
        case list() | tuple():
            return type(said)(_that_travels(each) for each in said)
        case dict():
            return {_that_travels(name): _that_travels(each) for name, each in said.items()}
        case _:
            return said


def _cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _place(name: str) -> int:
    """What takes long comes first: at the end all processes should be at work, until all have ended."""
    return {"": 1, ALONE: 2}.get(_name(name)[1], 0)


def _name(nodeid: str) -> tuple[str, str]:
    """A test's name, and the group that xdist writes behind it."""
    found = re.fullmatch(r"(.*?)(?:@([^@\]]+))?", nodeid, re.DOTALL)
    assert found
    return found[1], found[2] or ""


def _has_fixtures_of_its_module(item: pytest.Item) -> bool:
    if not isinstance(item, pytest.Function):
        return False
    used = item._fixtureinfo.name2fixturedefs
    return any(each.scope in ("class", "module", "package") for each in (found[-1] for found in used.values() if found))
