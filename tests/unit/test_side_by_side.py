"""How the suite itself gives out its tests: in any order, in parts, and some alone at the end."""

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from tests.plugins.order import shuffled
from tests.plugins.side_by_side import ALONE, SideBySide, parts_of, pytest_xdist_auto_num_workers

FEW = [f"few.py::test_{number}" for number in range(3)]
MANY = [f"many.py::test_{number}" for number in range(20)]
WHOLE = [f"whole.py::test_{number}[a@b]@whole" for number in range(12)]
LAST = ["many.py::test_late@alone", "few.py::test_late@alone"]


class Item:
    """As much of a test as its order is made of."""

    def __init__(self, module: str, name: str, *marks: pytest.Mark) -> None:
        self.path, self.nodeid, self._marks = module, f"{module}::{name}", marks

    def iter_markers(self) -> list[pytest.Mark]:
        """All of its marks."""
        return list(self._marks)

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        """The one of that name."""
        return next((mark for mark in self._marks if mark.name == name), None)


class Node:
    """A process that runs what it is sent, when the test says so."""

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.shutting_down = False
        self.sent: list[int] = []

    def send_runtest_some(self, indexes: list[int]) -> None:
        """Be sent tests."""
        assert not self.shutting_down
        self.sent += indexes

    def shutdown(self) -> None:
        """Be told that there is no more."""
        self.shutting_down = True


class Run:
    """A run of tests by so many processes, step by step."""

    def __init__(self, names: list[str], processes: int) -> None:
        options: Any = SimpleNamespace(tx=["popen"] * processes, debug=False)
        config: Any = SimpleNamespace(option=options, getvalue=lambda name: getattr(options, name), rootpath=".")
        self.names = names
        self.scheduler = SideBySide(config)
        self.nodes: list[Any] = [Node(f"gw{number}") for number in range(processes)]
        self.done: list[tuple[str, list[str]]] = []
        """What has run, and who was there meanwhile."""
        for node in self.nodes:
            self.scheduler.add_node(node)
            self.scheduler.add_node_collection(node, names)
        self.scheduler.schedule()

    def go_on(self, node: Any) -> bool:
        """Have a process run a test, as far as it has one and knows the next, or end; false where it waits."""
        ran = [index for index in node.sent if self.names[index] not in {name for name, _ in self.done}]
        if not ran and node.shutting_down and node in self.scheduler.nodes:
            assert self.scheduler.remove_node(node) is None
            return True
        if len(ran) > 1 or (ran and node.shutting_down):
            there = [each.gateway.id for each in self.scheduler.nodes]
            self.done.append((self.names[ran[0]], there))
            self.scheduler.mark_test_complete(node, ran[0])
            return True
        return False

    def to_the_end(self) -> list[str]:
        """All of them, each time all processes."""
        while sum([self.go_on(node) for node in self.nodes]):
            pass
        return [name for name, _ in self.done]


def test_a_module_is_given_out_in_parts_unless_a_fixture_is_made_for_all_of_it() -> None:
    """Eight tests at most; what is to run alone is one part."""
    parts = parts_of([*FEW, *MANY, *WHOLE, *LAST])
    assert len({parts[name] for name in FEW}) == 1
    assert sorted(len([name for name in MANY if parts[name] == part]) for part in {parts[name] for name in MANY}) == [
        4,
        8,
        8,
    ]
    assert len({parts[name] for name in WHOLE}) == 1
    assert {parts[name] for name in LAST} == {ALONE}


@pytest.mark.parametrize("processes", [1, 2, 3, 7])
@pytest.mark.parametrize(
    "names",
    [FEW[:1], LAST, [*FEW, *LAST], [*MANY, *WHOLE], [*LAST, *WHOLE, *MANY, *FEW]],
    ids=["one", "alone", "few", "none alone", "all"],
)
def test_every_test_runs_once_and_those_that_measure_time_alone(names: list[str], processes: int) -> None:
    """However many processes there are; also where there is less to do than there are of them."""
    run = Run(names, processes)
    assert sorted(run.to_the_end()) == sorted(names)
    assert all(len(there) == 1 for name, there in run.done if name.endswith("@alone"))
    assert run.scheduler.tests_finished


@pytest.mark.parametrize("ran", [0, 1, 7, 8, 9, 20, 24])
def test_what_a_process_had_that_died_runs_elsewhere(ran: int) -> None:
    """But for the test in which it died; and before those that run alone. One that stands in for it does its part."""
    names = [*MANY, *WHOLE, *[f"more.py::test_{number}" for number in range(50)], *LAST]
    run = Run(names, 3)
    dead = run.nodes[-1]
    for _ in range(ran):
        assert all(run.go_on(node) for node in run.nodes)
    run.nodes.remove(dead)
    died_in = run.scheduler.remove_node(dead)
    stands_in: Any = Node("gw3")
    run.scheduler.add_node(stands_in)
    assert all(run.go_on(node) for node in run.nodes)
    run.nodes.append(stands_in)
    run.scheduler.add_node_collection(stands_in, names)
    run.scheduler.schedule()
    ran_once = run.to_the_end()
    assert died_in in names
    assert sorted([*ran_once, died_in]) == sorted(names)
    assert set(ran_once[-2:]) == set(LAST)
    assert all(len(there) == 1 for name, there in run.done if name.endswith("@alone"))
    assert run.scheduler.tests_finished


def test_a_seed_is_an_order() -> None:
    """Another one is another; modules stay together, and what runs alone comes last."""
    alone = pytest.mark.alone("measures").mark
    items: list[Any] = [Item(module, str(number)) for module in ("a.py", "b.py", "c.py") for number in range(9)]
    items += [Item("a.py", "timed", alone)]
    orders = [[each.nodeid for each in shuffled(items, seed)] for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    assert [each.nodeid for each in shuffled(items, 0)] == [each.nodeid for each in items]
    of_one = [each.nodeid for each in shuffled([each for each in items if each.path == "b.py"], 1)]
    assert of_one == [name for name in orders[0] if name.startswith("b.py")]
    for order in orders:
        assert sorted(order) == sorted(each.nodeid for each in items)
        assert order[-1] == "a.py::timed"
        modules = [name.partition("::")[0] for name in order[:-1]]
        assert sum(one != other for one, other in pairwise(modules)) == 2


@pytest.mark.parametrize("args", [["tests/unit/test_event.py"], ["a_test.py::test_one", "b.py"]])
def test_single_files_run_in_one_process(args: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """They end before others have started; and so do servers of the user's own, which processes would share."""
    config: Any = SimpleNamespace(args=args)
    assert pytest_xdist_auto_num_workers(config) == 0
    config.args = ["tests"]
    monkeypatch.delenv("TEST_DATABASE_URL", raising=False)
    monkeypatch.delenv("TEST_REDIS_URL", raising=False)
    assert pytest_xdist_auto_num_workers(config) >= 1
    monkeypatch.setenv("TEST_DATABASE_URL", "postgresql://")
    assert pytest_xdist_auto_num_workers(config) == 0
