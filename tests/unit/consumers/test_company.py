"""Consumers beside each other: how they begin, tell of themselves, and end together."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from consumers import ConfigurationError, Consumer
from consumers.backlog import InboxStats, Queue
from consumers.company import Company
from consumers.events import ConsumerStarted, ConsumerStats, ConsumerStopped, DeliverySettled, Fate, StartWarning
from consumers.wiring import supervise
from relay import errors as relay_errors
from relay.kernel.observe import LoopDied, ShutdownBegan, ShutdownEnded
from relay.kernel.runner import Budget, Report
from relay.kernel.shutdown import Shutdown
from tests.unit.consumers.companions import FakeSource, FakeSupplies, brings, ends
from tests.unit.kernel.fakes import FakeClock, FakeRunner, in_fake_time, loop_of

SOFT = 25.0


class Scene:
    """Some consumers, what they work with, and what happened."""

    def __init__(self, *consumers: Consumer, sources: dict[str, FakeSource] | None = None) -> None:
        self.events: list[object] = []
        self.shutdown = Shutdown()
        self.clock = FakeClock()
        self.supplies = FakeSupplies(sources or {})
        self.company = Company(
            consumers,
            self.supplies,
            self.events.append,
            self.clock,
            soft_timeout=SOFT,
            stats_seconds=60.0,
            end=self.shutdown.request,
        )

    async def run(self) -> tuple[str, ...]:
        """Until shutdown."""
        return await supervise(self.company, self.shutdown, self.clock, SOFT, self.events.append)

    def stop_after(self, seconds: float) -> None:
        """Ask for the end later."""
        asyncio.get_running_loop().call_later(seconds, self.shutdown.request, "SIGTERM")

    def of(self, *kinds: type) -> list[object]:
        """What happened, of these kinds."""
        return [event for event in self.events if isinstance(event, kinds)]

    def names(self) -> list[str]:
        """The kinds of what happened, in its order."""
        return [type(event).__name__ for event in self.events]


def consumer(name: str, handle: Callable[..., object] | None = None) -> Consumer:
    """One with a handler for everything."""
    made = Consumer(name, dedup="none")

    async def book(event: object) -> None:
        """Act on nothing."""

    made.fallback(handle or book)
    return made


@in_fake_time
async def test_they_begin_and_end_together() -> None:
    """Each with its own subscription, told of one by one."""
    scene = Scene(
        consumer("a"),
        consumer("b"),
        sources={"a": FakeSource("a", brings("x", "y")), "b": FakeSource("b", brings("x"))},
    )
    scene.stop_after(1.0)

    assert await scene.run() == ()

    assert {event.consumer for event in scene.of(ConsumerStarted)} == {"a", "b"}  # type: ignore[attr-defined]
    assert (scene.supplies.sources["a"].acknowledged, scene.supplies.sources["b"].acknowledged) == (2, 1)
    assert all(source.closed for source in scene.supplies.sources.values())
    names = scene.names()
    assert names.count("StartWarning") == 2
    assert names.index("ShutdownBegan") < names.index("ConsumerStopped")
    assert names[-1] == "ShutdownEnded"
    assert scene.of(ShutdownBegan) == [ShutdownBegan("SIGTERM", SOFT)]


@in_fake_time
async def test_each_tells_how_it_is_now_and_then() -> None:
    """And in the end of what was since, so that nothing is counted nowhere."""
    scene = Scene(consumer("a"), sources={"a": FakeSource("a", brings("x", "y"))})
    scene.stop_after(150.0)

    await scene.run()

    told = [event for event in scene.events if isinstance(event, ConsumerStats)]
    assert [round(event.seconds) for event in told] == [60, 60, 30]
    assert [event.outcomes for event in told] == [{"done": 2}, {}, {}]
    assert [event.receiving for event in told] == [True, True, False]
    assert scene.names()[-2:] == ["ConsumerStats", "ShutdownEnded"]


class Backlog:
    """An inbox that can be looked at, and how often it was."""

    available = True

    def __init__(self) -> None:
        self.looks = 0

    async def look(self) -> None:
        """Count it."""
        self.looks += 1

    def stats(self) -> InboxStats:
        """With how often it was looked at for the count of what is due."""
        queue = Queue(self.looks, 0.0, 0, 0, 0)
        return InboxStats(self.available, 0, {}, 0, {}, 0, 0, 0, queue)


@in_fake_time
async def test_an_inbox_is_looked_at_for_each_line_but_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the end its sessions are ended, and nobody waits for a database."""
    backlog, scene = Backlog(), Scene(consumer("a"), sources={"a": FakeSource("a", brings("x"))})
    built = scene.supplies.of
    monkeypatch.setattr(scene.supplies, "of", lambda *given: replace(built(*given), backlog=backlog))
    scene.stop_after(150.0)

    await scene.run()

    told = [event for event in scene.events if isinstance(event, ConsumerStats)]
    assert [event.inbox.queue.due for event in told if event.inbox and event.inbox.queue] == [1, 2, 2]
    assert backlog.looks == 2


@in_fake_time
async def test_what_is_done_after_the_last_look_is_told() -> None:
    """A process that lives for less than a minute tells all the same."""
    scene = Scene(consumer("a"), sources={"a": FakeSource("a", brings("x"))})
    scene.stop_after(5.0)
    await scene.run()

    assert [event.outcomes for event in scene.events if isinstance(event, ConsumerStats)] == [{"done": 1}]


@in_fake_time
async def test_one_that_dies_ends_the_others_in_order() -> None:
    """A subscription never ends by itself; whoever runs the process has to start it anew."""

    async def slowly(_: object) -> None:
        """Take some seconds to the end."""
        await asyncio.sleep(10)

    async def later(_: object) -> None:
        await asyncio.sleep(3)

    scene = Scene(
        consumer("a", slowly), consumer("b"), sources={"a": FakeSource("a", brings("x")), "b": FakeSource("b", later)}
    )
    with pytest.raises(RuntimeError, match="the source of b ended by itself"):
        await scene.run()

    (died,) = (event for event in scene.events if isinstance(event, LoopDied))
    assert died.runner == "b"
    assert scene.of(ShutdownBegan) == [ShutdownBegan("consumer b died", SOFT)]
    assert [event.fate for event in scene.events if isinstance(event, DeliverySettled)] == [Fate.DONE]
    assert scene.names()[-1] == "ShutdownEnded"


@pytest.mark.parametrize("kind", [ConfigurationError, relay_errors.ConfigurationError])
def test_a_wrong_configuration_is_said_in_its_sentence_alone(kind: type[Exception]) -> None:
    """A line about the end of what never worked would hide it."""

    @in_fake_time
    async def run() -> None:
        scene = Scene(consumer("a"), sources={"a": FakeSource("a", refusal=kind("there is no subscription a"))})
        with pytest.raises(ConfigurationError, match=r"^consumer 'a': there is no subscription a$"):
            await scene.run()
        assert scene.events == []

    run()


@in_fake_time
async def test_a_wrong_configuration_beside_one_that_works_ends_both() -> None:
    """That one in order, with its lines."""
    scene = Scene(
        consumer("a"),
        consumer("b"),
        sources={"b": FakeSource("b", opening=2.0, refusal=ConfigurationError("no subscription"))},
    )
    with pytest.raises(ConfigurationError, match="no subscription"):
        await scene.run()

    assert scene.of(LoopDied) == []
    assert scene.of(ShutdownBegan) == [ShutdownBegan("consumer b could not start", SOFT)]
    assert [event.consumer for event in scene.events if isinstance(event, ConsumerStopped)] == ["a"]


@in_fake_time
async def test_a_broker_that_is_away_at_the_start_is_a_line_and_an_error() -> None:
    """It may be back: whoever runs the process starts it again."""
    away = relay_errors.BrokerError("UNAVAILABLE", "away")
    scene = Scene(consumer("a"), sources={"a": FakeSource("a", refusal=away)})
    with pytest.raises(relay_errors.BrokerError):
        await scene.run()

    assert scene.names() == ["LoopDied", "ShutdownBegan", "ShutdownEnded"]


@in_fake_time
async def test_all_errors_have_their_line_and_the_first_is_raised() -> None:
    """The others often follow from it."""
    sources = {
        name: FakeSource(name, opening=seconds, refusal=OSError(name)) for name, seconds in (("a", 2.0), ("b", 1.0))
    }
    scene = Scene(consumer("a"), consumer("b"), sources=sources)
    sources["a"].opening = 1.0
    with pytest.raises(OSError, match="a"):
        await scene.run()

    assert [event.runner for event in scene.events if isinstance(event, LoopDied)] == ["a", "b"]


@in_fake_time
async def test_who_is_asked_to_stop_before_it_works_stops_at_once() -> None:
    """It has nothing to finish, however long its broker keeps it waiting."""
    scene = Scene(consumer("a"), sources={"a": FakeSource("a", opening=1_000.0)})
    scene.stop_after(1.0)

    assert await scene.run() == ()

    (ended,) = (event for event in scene.events if isinstance(event, ShutdownEnded))
    assert ended.seconds < 0.1
    assert scene.of(ConsumerStarted, ConsumerStats, StartWarning) == []


@in_fake_time
async def test_a_cancelled_company_ends_as_soon_as_it_can() -> None:
    """Whoever cancels does not wait for a soft timeout; deliveries go back."""

    async def forever(_: object) -> None:
        """Never end by itself."""
        await asyncio.Event().wait()

    scene = Scene(consumer("a", forever), sources={"a": FakeSource("a", brings("x"))})
    task = asyncio.create_task(scene.run())
    await asyncio.sleep(1)
    task.cancel()
    began = asyncio.get_running_loop().time()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert asyncio.get_running_loop().time() - began < SOFT
    assert scene.supplies.sources["a"].given_back == 1
    assert scene.names()[-1] == "ShutdownEnded"


async def test_handlers_in_threads_that_do_not_return_are_named() -> None:
    """Nobody can cancel them; the process ends without them."""
    release, began = threading.Event(), threading.Event()

    def stuck(_: object) -> None:
        """Wait for what never comes."""
        began.set()
        release.wait(30)

    scene = Scene(consumer("a", stuck), sources={"a": FakeSource("a", brings("x"))})
    scene.company._soft_timeout = 0.0
    task = asyncio.create_task(scene.run())
    await asyncio.to_thread(began.wait, 10)
    scene.shutdown.request("SIGTERM")
    try:
        (name,) = await task
    finally:
        release.set()

    assert "stuck" in name
    assert scene.of(DeliverySettled) == []
    assert scene.supplies.sources["a"].given_back == 0
    assert scene.of(ShutdownEnded)
    (stopped,) = (event for event in scene.events if isinstance(event, ConsumerStopped))
    assert stopped.abandoned == (name,)


@in_fake_time
async def test_a_consumer_that_somebody_cancels_is_no_orderly_end() -> None:
    """Unnoticed it would look like one."""

    async def cancelled(_: object) -> None:
        raise asyncio.CancelledError

    scene = Scene(consumer("a"), sources={"a": FakeSource("a", cancelled)})
    with pytest.raises(RuntimeError, match="cancelled from outside"):
        await scene.run()


@in_fake_time
async def test_one_in_a_service_of_its_own_raises_what_it_died_of() -> None:
    """Nothing else is there to be ended."""
    events: list[object] = []
    supplies = FakeSupplies({"a": FakeSource("a", ends)})
    company = Company([consumer("a")], supplies, events.append, FakeClock(), soft_timeout=SOFT, stats_seconds=60.0)
    with pytest.raises(RuntimeError, match="ended by itself"):
        await company.work(asyncio.Event())


@in_fake_time
async def test_jobs_beside_them_end_with_them_and_those_that_do_not_are_named() -> None:
    """What fails in a job is its own; the end is told once."""
    scene = Scene(consumer("a"), sources={"a": FakeSource("a")})

    async def hangs(_: Budget) -> Report:
        await asyncio.Event().wait()
        raise AssertionError("never")

    jobs = [loop_of(FakeRunner(hangs, name="job:stuck")), loop_of(FakeRunner(OSError("no"), name="job:failing"))]
    scene.stop_after(1.0)

    assert await supervise(scene.company, scene.shutdown, scene.clock, SOFT, scene.events.append, jobs=jobs) == (
        "job:stuck",
    )

    assert [type(event) for event in scene.of(ShutdownBegan, ShutdownEnded)] == [ShutdownBegan, ShutdownEnded]
    (ended,) = scene.of(ShutdownEnded)
    assert ended.abandoned == ("job:stuck",)  # type: ignore[attr-defined]
    assert len(scene.of(ConsumerStopped)) == 1


@in_fake_time
async def test_jobs_alone_run_until_the_end() -> None:
    """Without a consumer there is no more to wait for."""
    scene, runner = Scene(), FakeRunner(Report(), name="job:ingest")
    scene.stop_after(10.0)

    await supervise(scene.company, scene.shutdown, scene.clock, SOFT, scene.events.append, jobs=[loop_of(runner)])

    assert len(runner.began) > 1
    assert runner.closed == 1


@in_fake_time
async def test_a_loop_of_a_job_that_dies_ends_the_consumers_in_order() -> None:
    """That is no job's failure, but a fault of ours; what it died of is raised in the end."""
    scene = Scene(consumer("a"), sources={"a": FakeSource("a")})

    async def dies(_: Budget) -> Report:
        await scene.clock.wait(asyncio.Event(), 1.0)
        raise relay_errors.ConfigurationError("a fault")

    jobs = [loop_of(FakeRunner(dies, name="job:ingest"))]

    with pytest.raises(relay_errors.ConfigurationError, match="a fault"):
        await supervise(scene.company, scene.shutdown, scene.clock, SOFT, scene.events.append, jobs=jobs)

    assert [event.runner for event in scene.of(LoopDied)] == ["job:ingest"]  # type: ignore[attr-defined]
    assert len(scene.of(ConsumerStopped)) == 1
    assert scene.names()[-1] == "ShutdownEnded"
