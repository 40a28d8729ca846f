"""What may run next: never two of a lane, never above a limit, in the order of the lane, and nothing is forgotten."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from consumers.classification import Classification
from consumers.delivery import Delivery
from consumers.flow import Flow, Line
from consumers.handlers import Handler
from consumers.job import Job
from consumers.permits import Permits
from consumers.received import Received
from consumers.retry import Exponential
from consumers.sources.source import Share


@dataclass
class HandClock:
    """A clock whose timers fire when it is moved, without an event loop."""

    now: float = 0.0
    timers: list[Any] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now

    def call_later(self, seconds: float, call: Callable[..., object], *args: Any) -> "HandTimer":
        timer = HandTimer(self.now + seconds, call, args)
        self.timers.append(timer)
        return timer

    def advance(self, seconds: float) -> None:
        """Fire what is due, in its order."""
        until = self.now + seconds
        while due := [timer for timer in self.timers if timer.when <= until]:
            first = min(due, key=lambda timer: timer.when)
            self.timers.remove(first)
            self.now = max(self.now, first.when)
            if not first.cancelled:
                first.call(*first.args)
        self.now = until

    async def wait(self, event: asyncio.Event, seconds: float) -> bool:
        raise AssertionError(f"a flow waits for {event}, {seconds} s")

    def timeout(self, seconds: float | None) -> Any:
        raise AssertionError(f"a flow has a timeout of {seconds} s")


@dataclass
class HandTimer:
    """A call that is to come."""

    when: float
    call: Callable[..., object]
    args: tuple[Any, ...]
    cancelled: bool = False

    def cancel(self) -> None:
        """Let it not come."""
        self.cancelled = True


def handler(pattern: str, concurrency: int) -> Handler:
    return Handler(
        function=print,
        pattern=pattern,
        version=1,
        data=None,
        concurrency=concurrency,
        timeout=timedelta(seconds=45),
        retry=Exponential(),
        classification=Classification(),
        in_thread=False,
        with_context=True,
    )


def job_on(line: Line, event_type: str, *, key: str = "", event_id: UUID | None = None) -> Job:
    event: Received[Any] = Received(
        event_id=event_id or uuid4(),
        event_type=event_type,
        version=1,
        occurred_at=datetime(2026, 1, 1, tzinfo=UTC),
        data=None,
        ordering_key=key,
        attributes={},
    )
    return Job(Delivery(body=b"", attributes={}, ordering_key=key), event, line)


def never(job: Job, rest: float) -> None:
    raise AssertionError("nothing is given back here")


class Bench:
    """A flow, and what it said."""

    def __init__(self, **limits: int) -> None:
        self.clock = HandClock()
        self.lines = {name: Line(handler(name, limit), limit) for name, limit in limits.items()}
        self.wakes = 0
        self.given_back: list[tuple[Job, float]] = []
        self.flow = Flow(self.clock, self.lines.values(), self._wake, self._back)

    def _wake(self) -> None:
        self.wakes += 1

    def _back(self, job: Job, rest: float) -> None:
        self.given_back.append((job, rest))

    def offer(self, line: str, event_type: str = "", **how: Any) -> Job:
        job = job_on(self.lines[line], event_type or line, **how)
        self.flow.offer(job)
        return job

    def take_all(self) -> list[Job]:
        taken = []
        while (job := self.flow.take()) is not None:
            taken.append(job)
        return taken


class TestALane:
    """One at a time, in its order."""

    def test_gives_its_next_one_when_the_first_is_finished(self) -> None:
        bench = Bench(a=10)
        first, second, third = (bench.offer("a", key="k") for _ in range(3))
        assert bench.take_all() == [first]
        assert (bench.flow.waiting, list(bench.flow.running)) == (2, [first])
        bench.flow.finish(first)
        assert bench.take_all() == [second]
        bench.flow.finish(second)
        assert bench.take_all() == [third]

    def test_waits_behind_one_that_rests(self) -> None:
        bench = Bench(a=10)
        first, second = (bench.offer("a", key="k") for _ in range(2))
        assert bench.take_all() == [first]
        bench.flow.rest(first, 5)
        assert (bench.take_all(), bench.flow.resting, bench.flow.waiting) == ([], 1, 1)
        bench.clock.advance(5)
        assert bench.take_all() == [first]
        bench.flow.finish(first)
        assert bench.take_all() == [second]

    def test_is_the_event_itself_where_there_is_no_key(self) -> None:
        bench, event = Bench(a=10), uuid4()
        first, second = (bench.offer("a", event_id=event) for _ in range(2))
        other = bench.offer("a")
        assert bench.take_all() == [first, other]
        bench.flow.finish(first)
        assert bench.take_all() == [second]

    def test_goes_across_handlers(self) -> None:
        bench = Bench(a=1, b=1)
        first, second = bench.offer("a", key="k"), bench.offer("b", key="k")
        assert bench.take_all() == [first]
        bench.flow.finish(first)
        assert bench.take_all() == [second]

    def test_is_not_begun_twice_by_one_that_is_finished_twice(self) -> None:
        """A fault behind the end of a delivery has it finished once more."""
        bench = Bench(a=10)
        first, second, third = (bench.offer("a", key="k") for _ in range(3))
        bench.take_all()
        bench.flow.finish(first)
        assert bench.take_all() == [second]
        bench.flow.finish(first)
        assert bench.take_all() == []
        bench.flow.finish(second)
        assert bench.take_all() == [third]

    def test_leaves_nothing_behind(self) -> None:
        bench = Bench(a=10)
        for _ in range(3):
            bench.offer("a", key="k")
            bench.offer("a")
        while jobs := bench.take_all():
            for job in jobs:
                bench.flow.finish(job)
        assert bench.flow._lanes == {}


class TestALimit:
    """So many of a handler at once."""

    def test_of_one_handler_holds_up_no_other(self) -> None:
        bench = Bench(a=2, b=5)
        for _ in range(4):
            bench.offer("a")
            bench.offer("b")
        assert Counter(job.subject.event_type for job in bench.take_all()) == {"a": 2, "b": 4}

    def test_frees_a_permit_when_one_rests(self) -> None:
        bench = Bench(a=1)
        first, second = bench.offer("a"), bench.offer("a")
        bench.take_all()
        bench.flow.rest(first, 60)
        assert bench.take_all() == [second]

    def test_is_served_in_turn(self) -> None:
        """Many of one handler do not keep the others from their turn."""
        bench = Bench(a=100, b=100)
        for _ in range(10):
            bench.offer("a")
        bench.offer("b")
        assert "b" in [bench.flow.take().subject.event_type for _ in range(3)]  # type: ignore[union-attr]


class TestAPause:
    """Nothing is begun at all."""

    def test_ends_by_itself_and_wakes_as_many_as_may_run(self) -> None:
        bench = Bench(a=3, b=10)
        for _ in range(5):
            bench.offer("a")
            bench.offer("b")
        bench.flow.pause(10)
        assert bench.take_all() == []
        bench.wakes = 0
        bench.clock.advance(10)
        assert bench.wakes == 3 + 5
        assert len(bench.take_all()) == 3 + 5

    def test_is_as_long_as_the_longest(self) -> None:
        bench = Bench(a=3)
        bench.offer("a")
        bench.flow.pause(10)
        bench.flow.pause(5)
        bench.clock.advance(9)
        assert bench.take_all() == []
        bench.clock.advance(1)
        assert len(bench.take_all()) == 1

    def test_that_was_ended_early_does_not_end_the_next_one(self) -> None:
        bench = Bench(a=3)
        bench.offer("a")
        bench.flow.pause(10)
        bench.flow.resume()
        bench.flow.pause(30)
        bench.clock.advance(15)
        assert bench.take_all() == []


class TestAThrottle:
    """Nothing of one type is begun."""

    def test_lets_other_types_of_the_same_handler_pass(self) -> None:
        bench = Bench(orders=10)
        bench.offer("orders", "order.paid")
        shipped = bench.offer("orders", "order.shipped")
        bench.flow.throttle("order.paid", 10)
        assert bench.take_all() == [shipped]
        bench.clock.advance(10)
        assert len(bench.take_all()) == 1

    def test_is_as_long_as_the_longest(self) -> None:
        bench = Bench(orders=10)
        bench.offer("orders", "order.paid")
        bench.flow.throttle("order.paid", 10)
        bench.flow.throttle("order.paid", 5)
        bench.flow.throttle("order.paid", 20)
        bench.clock.advance(19)
        assert bench.take_all() == []
        bench.clock.advance(1)
        assert len(bench.take_all()) == 1

    def test_of_no_time_is_none(self) -> None:
        bench = Bench(orders=10)
        bench.offer("orders", "order.paid")
        bench.flow.throttle("order.paid", 0)
        bench.clock.advance(0)
        assert len(bench.take_all()) == 1

    def test_wakes_as_many_as_may_run_when_it_ends(self) -> None:
        bench = Bench(orders=10)
        for _ in range(5):
            bench.offer("orders", "order.paid")
        bench.flow.throttle("order.paid", 10)
        bench.wakes = 0
        bench.clock.advance(10)
        assert bench.wakes == 5


class TestTheClosing:
    """What does not run goes back."""

    def test_gives_back_what_waits_and_what_rests_with_its_rest(self) -> None:
        bench = Bench(a=1)
        running, waiting = bench.offer("a"), bench.offer("a")
        resting, behind = bench.offer("a", key="k"), bench.offer("a", key="k")
        assert bench.flow.take() is running
        bench.flow.finish(running)
        assert bench.flow.take() is waiting
        bench.flow.finish(waiting)
        assert bench.flow.take() is resting
        bench.flow.rest(resting, 60)
        ready = bench.offer("a")
        bench.clock.advance(20)
        bench.flow.close()
        assert bench.given_back == [(resting, 40), (behind, 0), (ready, 0)]
        assert (bench.flow.resting, bench.flow.waiting, bench.take_all()) == (0, 0, [])
        bench.clock.advance(1_000)
        assert len(bench.given_back) == 3

    def test_keeps_what_waits_behind_a_running_one_until_that_has_ended(self) -> None:
        bench = Bench(a=1)
        first, second, third = (bench.offer("a", key="k") for _ in range(3))
        bench.take_all()
        bench.flow.close()
        assert bench.given_back == []
        bench.flow.finish(first)
        assert bench.given_back == [(second, 0), (third, 0)]


LIMITS = {"a": 1, "b": 2, "c": 5}
KEYS = st.sampled_from(["", "", "k1", "k2", "k3"])


class FlowMachine(RuleBasedStateMachine):
    """Whatever is offered, taken, finished, rested, paused and throttled, in whatever order."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench(**LIMITS)
        self.running: list[Job] = []
        self.offered: list[Job] = []
        self.done: list[Job] = []
        self.of_lane: dict[Any, list[Job]] = defaultdict(list)
        self.events = [uuid4() for _ in range(4)]

    @initialize()
    def begin(self) -> None:
        """Nothing is there yet."""

    @rule(line=st.sampled_from(sorted(LIMITS)), key=KEYS, twin=st.integers(0, 7), kind=st.sampled_from("xy"))
    def offer(self, line: str, key: str, twin: int, kind: str) -> None:
        """A delivery comes; sometimes of an event that is there."""
        event = self.events[twin] if twin < len(self.events) else None
        job = self.bench.offer(line, f"{line}.{kind}", key=key, event_id=event)
        self.offered.append(job)
        self.of_lane[job.lane].append(job)

    @rule()
    def take(self) -> None:
        """A worker is free."""
        job = self.bench.flow.take()
        if job is None:
            return
        assert job is self.of_lane[job.lane][0], "not the first of its lane"
        assert job.lane not in {each.lane for each in self.running}, "two of a lane at once"
        assert job.subject.event_type not in job.line.paused
        self.running.append(job)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        """A handler has ended."""
        job = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        self.of_lane[job.lane].remove(job)
        self.done.append(job)
        self.bench.flow.finish(job)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), seconds=st.sampled_from([0.0, 1.0, 5.0, 60.0]))
    def rest(self, data: st.DataObject, seconds: float) -> None:
        """A handler has failed."""
        job = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        self.bench.flow.rest(job, seconds)

    @rule(seconds=st.sampled_from([0.5, 5.0]))
    def pause(self, seconds: float) -> None:
        """The store is away."""
        self.bench.flow.pause(seconds)

    @rule()
    def resume(self) -> None:
        """The store is back."""
        self.bench.flow.resume()

    @rule(line=st.sampled_from(sorted(LIMITS)), kind=st.sampled_from("xy"), seconds=st.sampled_from([0.0, 5.0]))
    def throttle(self, line: str, kind: str, seconds: float) -> None:
        """A handler wants no more of a type for a while."""
        self.bench.flow.throttle(f"{line}.{kind}", seconds)

    @rule(seconds=st.sampled_from([0.0, 1.0, 5.0, 60.0]))
    def advance(self, seconds: float) -> None:
        """Time goes by."""
        self.bench.clock.advance(seconds)

    @invariant()
    def limits_hold(self) -> None:
        """Never more of a handler than it may."""
        running = Counter(job.line.handler.pattern for job in self.running if job.line.handler)
        assert all(running[name] <= limit for name, limit in LIMITS.items())
        assert self.bench.flow.running == set(self.running)

    @invariant()
    def nothing_is_forgotten(self) -> None:
        """Each delivery runs, waits, rests or is over."""
        flow = self.bench.flow
        assert len(self.offered) == len(self.done) + flow.waiting + flow.resting + len(self.running)

    def teardown(self) -> None:
        """In the end everything comes to its end, in the order of its lane; or everything goes back at the closing."""
        bench = self.bench
        if len(self.offered) % 2:
            bench.flow.close()
            for job in self.running:
                bench.flow.finish(job)
            back = [job for job, _ in bench.given_back]
            assert len(back) == len(set(back))
            assert set(back) | set(self.running) | set(self.done) == set(self.offered)
            return
        for _ in range(10 * len(self.offered) + 1):
            for job in list(self.running):
                self.running.remove(job)
                self.of_lane[job.lane].remove(job)
                self.done.append(job)
                bench.flow.finish(job)
            bench.clock.advance(100)
            for _ in range(20):
                self.take()
        assert len(self.done) == len(self.offered)
        assert bench.flow._lanes == {}


TestFlowWhateverHappens = FlowMachine.TestCase
TestFlowWhateverHappens.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)


@given(st.lists(st.tuples(st.sampled_from(sorted(LIMITS)), KEYS), max_size=40), st.integers(1, 20))
def test_a_crew_that_sleeps_until_it_is_woken_does_all_of_it(offers: list[tuple[str, str]], workers: int) -> None:
    """Each delivery that may run has somebody awake for it: no wake-up is lost."""
    idle, done = workers, 0
    awake = 0

    def wake() -> None:
        nonlocal idle, awake
        if idle:
            idle -= 1
            awake += 1

    clock = HandClock()
    lines = {name: Line(handler(name, limit), limit) for name, limit in LIMITS.items()}
    flow = Flow(clock, lines.values(), wake, never)
    flow.pause(1)
    for line, key in offers:
        flow.offer(job_on(lines[line], line, key=key))
    running: list[Job] = []
    clock.advance(1)
    while awake or running:
        while awake:
            job = flow.take()
            awake -= 1
            if job is None:
                idle += 1
            else:
                running.append(job)
        if running:
            flow.finish(running.pop())
            done += 1
            awake += 1
    assert done == len(offers)


@pytest.mark.parametrize("seconds", [0.0, -1.0])
def test_a_rest_of_no_time_is_a_turn_behind_the_others(seconds: float) -> None:
    bench = Bench(a=1)
    first, second = bench.offer("a"), bench.offer("a")
    assert bench.flow.take() is first
    bench.flow.rest(first, seconds)
    assert bench.flow.take() is second


async def test_batches_take_no_permit_that_others_share() -> None:
    """What is not in batches is bounded in all; a batch by its own line alone, and neither waits for the other."""
    lines = {
        "a": Line(handler("a", 5), 5),
        "b": Line(handler("b", 5), 5),
        "batch": Line(replace(handler("batch", 1), batch=4), 4),
    }
    given_back: list[Job] = []
    flow = Flow(HandClock(), lines.values(), lambda: None, lambda job, _: given_back.append(job), 3)
    permits = Permits(flow, lambda event_type: [lines[event_type]], 3)
    assert (permits.room, permits.shares(["a", "batch", "b"])) == (
        7,
        [Share(3, {"a": 3, "b": 3}), Share(4, {"batch": 4})],
    )
    for name in ("a", "b", "batch"):
        for _ in range(5):
            flow.offer(job_on(lines[name], name))
    taken: list[Job] = []
    while (job := flow.take()) is not None:
        taken.append(job)
    assert Counter(job.subject.event_type for job in taken)["batch"] == 4
    assert len(taken) == 7
    assert (permits.room, permits.shares(["a", "batch"])) == (0, [])

    mixed = Permits(flow, lambda _: [lines["a"], lines["batch"]], 3)
    flow.finish(next(job for job in taken if job.subject.event_type == "batch"))
    assert mixed.shares(["two versions"]) == []  # the one that was ready has its place
    assert [job.subject.event_type for job in iter(flow.take, None)] == ["batch"]
    flow.finish(next(job for job in taken if job.subject.event_type == "a"))
    (single,) = iter(flow.take, None)
    assert single.subject.event_type in {"a", "b"}
    flow.close()
    assert permits.shares(["a", "batch"]) == []
    assert len(given_back) == 15 - len(taken) - 2
