"""Workers are made as they are needed, up to a number, and sleep until they are woken."""

import asyncio
from collections import deque
from typing import Any, cast

from consumers.clock import SystemClock
from consumers.crew import Crew
from consumers.job import Job
from consumers.testing.clock import settle


class Work:
    """Jobs that wait, and what became of them."""

    def __init__(self, most: int) -> None:
        self.waiting: deque[Any] = deque()
        self.done: list[str] = []
        self.now: set[str] = set()
        self.most_at_once = 0
        self.go = asyncio.Event()
        self.crew = Crew(most, self.take, self.work, SystemClock())

    def take(self) -> Job | None:
        return self.waiting.popleft() if self.waiting else None

    async def work(self, job: Any) -> None:
        self.now.add(job.name)
        self.most_at_once = max(self.most_at_once, len(self.now))
        await self.go.wait()
        self.now.discard(job.name)
        self.done.append(job.name)

    def give(self, *names: str) -> None:
        for name in names:
            self.waiting.append(cast("Job", Named(name)))
            self.crew.wake()


class Named:
    """As good as a job here."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.task: Any = None


async def test_so_many_work_at_once_and_the_rest_waits() -> None:
    work = Work(2)
    work.give("a", "b", "c")
    await settle()
    assert (work.now, len(work.crew._workers)) == ({"a", "b"}, 2)
    work.go.set()
    assert await work.crew.calm(10)
    await settle()
    assert (sorted(work.done), work.most_at_once) == (["a", "b", "c"], 2)
    await work.crew.dismiss(1)


async def test_workers_are_made_as_they_are_needed_and_woken_when_they_sleep() -> None:
    work = Work(50)
    work.go.set()
    for name in "abc":
        work.give(name)
        await settle()
    assert (work.done, len(work.crew._workers)) == (["a", "b", "c"], 1)
    await work.crew.dismiss(1)


async def test_a_job_knows_who_works_on_it_while_somebody_does() -> None:
    work = Work(1)
    work.give("a")
    job = work.waiting[0]
    await settle()
    assert job.task is next(iter(work.crew._workers))
    work.go.set()
    await settle()
    assert job.task is None
    await work.crew.dismiss(1)


async def test_calm_is_when_nobody_works_and_is_not_waited_for_longer_than_said() -> None:
    work = Work(1)
    assert await work.crew.calm(0.01)
    work.give("a")
    await settle()
    assert not await work.crew.calm(0.01)
    work.go.set()
    assert await work.crew.calm(10)
    await work.crew.dismiss(1)


async def test_a_job_that_never_waits_lets_others_have_their_turn() -> None:
    """A source and signals are served although there is always something to do."""
    turns, crew_done = 0, 0
    endless = deque(range(1_000))

    async def work(_: Any) -> None:
        nonlocal crew_done
        crew_done += 1

    crew = Crew(1, lambda: cast("Job", Named(str(endless.popleft()))) if endless else None, work, SystemClock())
    crew.wake()
    while crew_done < 1_000:
        await asyncio.sleep(0)
        turns += 1
    assert turns > 50
    await crew.dismiss(1)


async def test_a_worker_that_dies_is_replaced() -> None:
    work = Work(1)

    class OddError(BaseException):
        pass

    async def die(_: Any) -> None:
        raise OddError

    work.crew._work = die
    work.give("a")
    await settle()
    work.crew._work = work.work
    work.go.set()
    work.give("b")
    await settle()
    assert work.done == ["b"]
    assert await work.crew.calm(1)
    await work.crew.dismiss(1)


async def test_nobody_is_made_after_the_dismissal() -> None:
    work = Work(3)
    work.give("a")
    await settle()
    await work.crew.dismiss(1)
    work.give("b")
    await settle()
    assert (work.done, work.crew._workers) == ([], set())
