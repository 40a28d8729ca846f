"""Tells where the time of a run goes, by folder, module and fixture: `make test-durations`.

The figures are the sums of all processes: more than the run took.
"""

import os
import time
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

import pytest

_MODULES = _FIXTURES = 30


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--where-time-goes` is the switch."""
    parser.addoption("--where-time-goes", action="store_true", help="tell it by folder, module and fixture")


def pytest_configure(config: pytest.Config) -> None:
    """Measure, if that is asked for."""
    if config.getoption("--where-time-goes"):
        measuring = WhereTimeGoes(config)
        config.pluginmanager.register(measuring)
        measuring.measure_ends()


@dataclass
class Spent:
    """Seconds, and the processor's seconds of this process among them; how often."""

    seconds: float = 0.0
    cpu: float = 0.0
    times: int = 0

    def add(self, seconds: float, cpu: float, times: int = 1) -> None:
        """Count more of the same."""
        self.seconds += seconds
        self.cpu += cpu
        self.times += times


@dataclass(eq=False)  # pytest keeps plugins in sets
class WhereTimeGoes:
    """Measures in each process that runs tests; the first of all adds up and prints."""

    config: pytest.Config
    modules: defaultdict[str, Spent] = field(default_factory=lambda: defaultdict(Spent))
    fixtures: defaultdict[str, Spent] = field(default_factory=lambda: defaultdict(Spent))
    _inner: list[Spent] = field(default_factory=list)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Measure a test, with what is set up for it and torn down behind it."""
        began = _now()
        try:
            return (yield)
        finally:
            self.modules[item.nodeid.partition("::")[0]].add(*_since(began))

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, Any, Any]:
        """Measure a fixture, without those that it asks for. To pytest each parameter of a test is one as well."""
        if fixturedef.func.__module__ == "_pytest.python":
            return (yield)
        with self._measured(fixturedef):
            return (yield)

    def measure_ends(self) -> None:
        """Measure the end of each fixture as well, for which pytest has no hook."""
        end = pytest.FixtureDef.finish

        def finish(fixturedef: Any, request: Any) -> None:
            with self._measured(fixturedef, times=0):
                end(fixturedef, request)

        pytest.FixtureDef.finish = finish  # type: ignore[assignment, method-assign]

    @contextmanager
    def _measured(self, fixturedef: Any, times: int = 1) -> Iterator[None]:
        began = _now()
        self._inner.append(Spent())
        try:
            yield
        finally:
            whole = _since(began)
            inner = self._inner.pop()
            for outer in self._inner[-1:]:
                outer.add(*whole)
            name = f"{fixturedef.argname} ({fixturedef.baseid or 'plugin'})"
            self.fixtures[name].add(whole[0] - inner.seconds, whole[1] - inner.cpu, times)

    def pytest_sessionfinish(self) -> None:
        """Hand over what was measured in this process."""
        if hasattr(self.config, "workeroutput"):
            self.config.workeroutput["spent"] = [
                {name: (each.seconds, each.cpu, each.times) for name, each in table.items()}
                for table in (self.modules, self.fixtures)
            ]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Add up."""
        for table, told in zip(
            (self.modules, self.fixtures), getattr(node, "workeroutput", {}).get("spent", []), strict=False
        ):
            for name, spent in told.items():
                table[name].add(*spent)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the tables."""
        terminalreporter.write_line("\nthe sums of all processes")
        folders: defaultdict[str, Spent] = defaultdict(Spent)
        for module, spent in self.modules.items():
            folders[str(PurePosixPath(module).parent)].add(spent.seconds, spent.cpu, spent.times)
        for title, table, most in (
            ("folders, each without those in it", folders, len(folders)),
            ("modules", self.modules, _MODULES),
            ("fixtures, without those that they ask for", self.fixtures, _FIXTURES),
        ):
            terminalreporter.write_line(f"\n{'seconds':>8} {'cpu':>8} {'times':>6}  {title}")
            for line in _lines(table, most):
                terminalreporter.write_line(line)


def _lines(table: Mapping[str, Spent], most: int) -> Iterable[str]:
    for name, spent in sorted(table.items(), key=lambda each: -each[1].seconds)[:most]:
        yield f"{spent.seconds:8.1f} {spent.cpu:8.1f} {spent.times:6}  {name}"


def _now() -> tuple[float, float]:
    spent = os.times()
    return time.perf_counter(), spent.user + spent.system


def _since(began: tuple[float, float]) -> tuple[float, float]:
    seconds, cpu = _now()
    return seconds - began[0], cpu - began[1]
