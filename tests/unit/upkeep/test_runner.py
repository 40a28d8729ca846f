"""When a job runs, and what is asked for it: sleep until its slot, one question, the next."""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from relay.errors import SchemaError
from relay.kernel.observe import PassFailed
from relay.kernel.runner import Budget
from relay.kernel.shutdown import Shutdown
from relay.kernel.supervise import supervise
from relay.upkeep.building import job_runners
from relay.upkeep.events import RunEnded, RunSkipped, RunUnrecorded, Status
from relay.upkeep.history import HURRY_SECONDS
from relay.upkeep.holding import Holding
from relay.upkeep.jobs import Jobs
from relay.upkeep.run import Run, Surroundings
from tests.unit.kernel.fakes import FakeClock, in_fake_time
from tests.unit.upkeep.fakes import NEW_YEAR, Counting, Database, Process, jobs_of

HOUR = 3_600.0


@pytest.fixture(autouse=True)
def locks_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process takes its locks where its test has them."""

    async def take(connect: Any, schema: str, job: str, clock: object) -> Any:
        return await connect.__self__.take(connect, schema, job, clock)

    monkeypatch.setattr(Holding, "take", take)


@in_fake_time
async def test_a_job_sleeps_from_slot_to_slot() -> None:
    """Nothing is asked in between, and one question is asked for each."""
    database, work = Database(NEW_YEAR + timedelta(seconds=7)), Counting()
    async with Process(database, jobs_of(work, every="10m")):
        await asyncio.sleep(HOUR)

    assert sorted(work.slots) == [NEW_YEAR + timedelta(minutes=10 * number) for number in range(7)]
    assert set(work.slots.values()) == {1}
    # Nobody knows the time before the first answer, and the job before the second.
    assert database.times("slot_take") == [0, 0, *(600 * number - 7 for number in range(1, 7))]


@in_fake_time
async def test_of_three_processes_each_slot_is_one_s() -> None:
    """They all wake for it, and ask once."""
    database, work = Database(), Counting(seconds=1)
    async with (
        Process(database, jobs_of(work, every="1m")),
        Process(database, jobs_of(work, every="1m")),
        Process(database, jobs_of(work, every="1m")),
    ):
        await asyncio.sleep(600)

    assert set(work.slots.values()) == {1}
    assert len(work.slots) == 11
    assert len(database.times("slot_take")) <= 3 * (11 + 1)


@in_fake_time
async def test_a_job_that_takes_longer_than_its_interval_makes_up_for_the_latest_slot() -> None:
    """Not for each of those that came meanwhile."""
    database, work = Database(), Counting(seconds=150)
    async with Process(database, jobs_of(work, every="1m")):
        await asyncio.sleep(400)

    assert [slot - NEW_YEAR for slot in work.slots] == [timedelta(seconds=s) for s in (0, 120, 300)]


@in_fake_time
async def test_a_slot_that_comes_while_the_run_before_goes_on_elsewhere_is_skipped() -> None:
    """It is taken, and not made up for."""
    database, long, short = Database(), Counting(seconds=90), Counting()
    async with Process(database, jobs_of(long, every="1m")):
        await asyncio.sleep(1)
        async with Process(database, jobs_of(short, every="1m")) as other:
            await asyncio.sleep(88)
            assert [event.slot - NEW_YEAR for event in other.of(RunSkipped)] == [timedelta(minutes=1)]
            assert not short.slots


@pytest.mark.parametrize("rate", [0.99, 1.01, 1.0])
@in_fake_time
async def test_a_clock_that_runs_at_another_speed_is_followed(rate: float) -> None:
    """Slots are the database's; whoever is early asks again as the slot comes, and not over and over."""
    database, work = Database(rate=rate), Counting()
    async with Process(database, jobs_of(work, every="1h")):
        await asyncio.sleep(24 * HOUR / rate - 5)

    assert len(work.slots) == 24
    assert set(work.slots.values()) == {1}
    assert len(database.times("slot_take")) < 24 * 6


@in_fake_time
async def test_a_clock_that_stands_still_is_not_asked_over_and_over() -> None:
    """As little as one that is set back."""
    database, work = Database(NEW_YEAR + timedelta(seconds=59.999)), Counting()
    async with Process(database, jobs_of(work, every="1m")):
        await asyncio.sleep(1)
        database.rate = 0.0
        await asyncio.sleep(60)
        stood = len(database.asked)
        await asyncio.sleep(60)
        assert len(database.asked) - stood <= 60
        database.start -= timedelta(days=1)
        before = len(database.asked)
        await asyncio.sleep(HOUR)
        assert len(database.asked) - before <= HOUR


@in_fake_time
async def test_a_schedule_that_somebody_removes_again_and_again_does_not_spin() -> None:
    """A row that is never there to be updated: it is asked for at most once a second before long."""
    database, work = Database(), Counting()
    async with Process(database, jobs_of(work, every="1h")) as process:

        async def ask(_: str, values: Any) -> list[Any]:
            database.asked.append(("slot_take", 0.0))
            del values
            return [(False, database.now.timestamp(), None, None)]

        process.session.ask = ask
        await asyncio.sleep(600)
    assert len(database.asked) < 3 * 700


@in_fake_time
async def test_a_database_that_is_away_is_asked_again_as_the_pace_says() -> None:
    """Every half a minute; of what was missed the latest slot is made up for."""
    database, work = Database(), Counting()
    async with Process(database, jobs_of(work, every="1h")) as process:
        await asyncio.sleep(30)
        database.away = True
        await asyncio.sleep(2 * HOUR)
        database.away = False
        await asyncio.sleep(60)
        failures = len(process.of(PassFailed))
    asked = database.times("slot_take")[2:]
    assert asked[:4] == [3600, 3630, 3660, 3690]
    assert len(asked) == failures + 1
    assert [slot - NEW_YEAR for slot in work.slots] == [timedelta(hours=0), timedelta(hours=2)]


@in_fake_time
async def test_after_a_failure_the_next_slot_is_missed_by_five_seconds_at_most() -> None:
    """Where it is nearer than the pause that the pace asks for."""
    database, work = Database(), Counting()
    async with Process(database, jobs_of(work, every="10s")) as process:
        await asyncio.sleep(5)
        database.away = True
        await asyncio.sleep(7)
        database.away = False
        await asyncio.sleep(20)
        assert len(process.of(PassFailed)) == 1
    assert database.times("slot_take")[2:] == [10, 25, 30]
    assert [slot - NEW_YEAR for slot in work.slots] == [timedelta(seconds=s) for s in (0, 20, 30)]


@in_fake_time
async def test_the_session_is_ended_while_all_slots_are_far() -> None:
    """And kept while one of them is near, or under way."""
    jobs = Jobs()

    async def work(_: Run) -> None:
        await asyncio.sleep(0)

    jobs.every("1h", name="rare")(work)
    jobs.every("30s", name="often")(work)
    often = Process(Database(), jobs)
    async with often:
        await asyncio.sleep(600)
        assert often.session.rested == 0
    rare = Process(Database(), jobs_of(Counting(), every="1h"))
    async with rare:
        await asyncio.sleep(600)
        assert (rare.session.rested, rare.session.closed) == (1, 0)
    assert rare.session.closed >= 1


@in_fake_time
async def test_a_stop_ends_the_sleep_and_begins_nothing() -> None:
    """However far the next slot is."""
    database, work = Database(), Counting()
    process = Process(database, jobs_of(work, every="7d"))
    loop = asyncio.get_running_loop()
    async with process:
        await asyncio.sleep(10)
        before = loop.time()
    assert loop.time() - before < 1
    assert (await process.run_once()).processed == 0
    assert len(work.slots) == 1


@in_fake_time
async def test_a_lock_that_is_lost_cancels_the_job() -> None:
    """At once, whatever it does."""
    database, work = Database(), Counting(seconds=500)
    process = Process(database, jobs_of(work, every="1h"))
    running = asyncio.create_task(process.run_once())
    await asyncio.sleep(10)
    process.holdings[0].gone.set_result(OSError("reset"))
    report = await running
    (ended,) = process.of(RunEnded)
    assert (ended.status, ended.seconds, report.errors) == (Status.LOST, 10, 1)
    assert database.ended[0]["error"] == "OSError: reset"


@in_fake_time
async def test_a_job_is_bounded_by_its_timeout_and_by_what_a_tick_has_left() -> None:
    """The smaller of the two."""
    for given, took in ((10_000.0, 600.0), (40.0, 40.0)):
        process = Process(Database(), jobs_of(Counting(seconds=9_999), every="1h"))
        await process.run_once(given)
        (ended,) = process.of(RunEnded)
        assert (ended.status, ended.seconds) == (Status.TIMED_OUT, took)


DAYS = [
    # The clocks of Berlin go forward at 02:00, and back at 03:00; those of Lord Howe by half an hour.
    ("Europe/Berlin", "30 2 * * *", datetime(2026, 3, 28, 12, tzinfo=UTC), ["2026-03-29 01:00"]),
    ("Europe/Berlin", "30 2 * * *", datetime(2026, 10, 24, 12, tzinfo=UTC), ["2026-10-25 00:30"]),
    ("Europe/Berlin", "30 3 * * *", datetime(2026, 3, 28, 12, tzinfo=UTC), ["2026-03-29 01:30"]),
    ("Australia/Lord_Howe", "15 2 * * *", datetime(2026, 10, 3, 6, tzinfo=UTC), ["2026-10-03 15:30"]),
    ("UTC", "30 2 * * *", datetime(2026, 3, 28, 12, tzinfo=UTC), ["2026-03-29 02:30"]),
]


@pytest.mark.parametrize(("zone", "cron", "start", "expected"), DAYS)
@in_fake_time
async def test_a_day_on_which_clocks_are_changed_has_its_slot_once(
    zone: str, cron: str, start: datetime, expected: list[str]
) -> None:
    """One that is skipped is made up for, and one that comes twice counts the first time."""
    database, work = Database(start), Counting()
    async with Process(database, jobs_of(work, cron=cron, timezone=zone)):
        await asyncio.sleep(20 * HOUR)
    assert [f"{slot:%Y-%m-%d %H:%M}" for slot in work.slots] == expected
    assert set(work.slots.values()) == {1}


@pytest.mark.parametrize("start", [datetime(2026, 3, 28, 20, tzinfo=UTC), datetime(2026, 10, 24, 20, tzinfo=UTC)])
@pytest.mark.parametrize("cron", ["*/15 * * * *", "0 * * * *", None])
@in_fake_time
async def test_what_comes_at_a_pace_keeps_it_as_clocks_are_changed(cron: str | None, start: datetime) -> None:
    """Neither more nor less, and the database is asked once for each."""
    database, work = Database(start), Counting()
    jobs = jobs_of(work, cron=cron, timezone="Europe/Berlin") if cron else jobs_of(work, every="15m")
    async with Process(database, jobs):
        await asyncio.sleep(12 * HOUR + 1)
    pace = timedelta(hours=1) if cron == "0 * * * *" else timedelta(minutes=15)
    first = min(work.slots)
    assert sorted(work.slots) == [first + pace * number for number in range(timedelta(hours=12) // pace + (not cron))]
    assert len(database.times("slot_take")) <= len(work.slots) + 2


@in_fake_time
async def test_a_slot_whose_answer_was_lost_is_run_by_whoever_took_it() -> None:
    """And by nobody else, and once."""
    database, work = Database(), Counting()
    async with (
        Process(database, jobs_of(work, every="1h")) as one,
        Process(database, jobs_of(work, every="1h")) as other,
    ):
        await asyncio.sleep(10)
        database.forgetful = True
        await asyncio.sleep(2 * HOUR)
        assert len(one.of(PassFailed)) + len(other.of(PassFailed)) == 1
    assert dict(work.slots) == {NEW_YEAR + timedelta(hours=hours): 1 for hours in range(3)}


@in_fake_time
async def test_a_schema_that_is_too_old_ends_no_loop() -> None:
    """Others go on, and so does this one as soon as somebody has brought it up."""
    database, work = Database(), Counting()
    process = Process(database, jobs_of(work, every="1m"))
    ask = process.session.ask

    async def too_old(name: str, values: Any) -> Any:
        raise psycopg.errors.UndefinedTable(f"{name} {values}")

    process.session.ask = too_old
    async with process:
        await asyncio.sleep(100)
        assert {type(event.error) for event in process.of(PassFailed)} == {SchemaError}
        assert "bring this one up with" in str(process.of(PassFailed)[0].error)
        process.session.ask = ask
        await asyncio.sleep(100)
    assert len(work.slots) >= 2


@in_fake_time
async def test_a_job_has_the_soft_timeout_to_end_and_is_then_cancelled() -> None:
    """It sees that the process is stopping; its row says what became of it, and its name who was late."""
    seen: list[bool] = []
    jobs = Jobs()

    @jobs.every("1h")
    async def slow(run: Run) -> None:
        while True:
            await asyncio.sleep(1)
            seen.append(run.stopping)

    @jobs.every("1h")
    async def polite(run: Run) -> None:
        while not run.stopping:  # noqa: ASYNC110 -- in time that jumps this costs nothing
            await asyncio.sleep(1)

    database = Database()
    process = Process(database, jobs)
    shutdown = Shutdown()
    asyncio.get_running_loop().call_later(10, shutdown.request, "SIGTERM")
    abandoned = await supervise(process.loops(), shutdown, process.clock, 25.0, process.heard.append)
    assert abandoned == ("job:slow",)
    assert 24 <= seen.count(True) <= 26
    assert sorted((event.job, event.status) for event in process.of(RunEnded)) == [
        ("polite", Status.DONE),
        ("slow", Status.CANCELLED),
    ]
    assert sorted(str(ended["status"]) for ended in database.ended) == ["cancelled", "done"]
    assert not database.held
    assert process.session.closed


@pytest.mark.parametrize(("slow", "written"), [(0.5, ["done"]), (30.0, [])], ids=["soon", "late"])
@in_fake_time
async def test_a_run_that_is_done_is_told_of_though_its_process_ends_meanwhile(slow: float, written: list[str]) -> None:
    """The last word of its history has a second more; the log and the metrics have theirs in any case."""
    database = Database(slow={"run_end": slow})
    process = Process(database, jobs_of(Counting(seconds=10), every="1h"))
    running = asyncio.create_task(process.run_once())
    await asyncio.sleep(10.25)
    running.cancel()
    began = asyncio.get_running_loop().time()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert asyncio.get_running_loop().time() - began <= HURRY_SECONDS
    assert [ended.status for ended in process.of(RunEnded)] == [Status.DONE]
    assert [ended["status"] for ended in database.ended] == written
    assert len(process.of(RunUnrecorded)) == (not written)
    assert not database.held


@in_fake_time
async def test_how_a_run_has_ended_is_written_when_the_database_is_back() -> None:
    """A restart of the database ends the run by its lock, and is not there to hear of it; the next slot is far."""
    database = Database()
    async with Process(database, jobs_of(Counting(seconds=500), every="1h")) as process:
        await asyncio.sleep(10)
        database.away = True
        process.holdings[0].gone.set_result(OSError("reset"))
        await asyncio.sleep(45)
        assert not database.ended
        database.away = False
        await asyncio.sleep(45)
        assert [(ended["status"], ended["late"]) for ended in database.ended] == [("lost", 60.0)]
        asked = len(database.asked)
        await asyncio.sleep(300)
        assert len(database.asked) == asked
        assert len(process.of(RunUnrecorded)) == 1


@in_fake_time
async def test_how_a_run_has_ended_is_written_though_its_pass_was_cut_short() -> None:
    """One that did not end in time holds its pass up, which then has a second left; the process goes on."""
    database, jobs = Database(slow={"run_end": 5.0}), Jobs()

    @jobs.every("1h", timeout="1s")
    async def deaf(_: Run) -> None:
        over = asyncio.create_task(asyncio.sleep(100))
        while not over.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({over})

    async with Process(database, jobs) as process:
        await asyncio.sleep(300)
        assert [ended.status for ended in process.of(RunEnded)] == [Status.TIMED_OUT]
    assert [(ended["status"], ended["late"]) for ended in database.ended] == [("timed_out", 31.0)]


@in_fake_time
async def test_a_host_that_is_silent_leaves_time_for_the_next_one() -> None:
    """A URL may name several, each of which is tried for ten seconds."""

    async def connect() -> Any:
        await asyncio.sleep(20)
        raise psycopg.OperationalError("so says the third one")

    around = Surroundings(connect=connect, schema="public", observe=lambda _: None)
    clock = FakeClock()
    (runner,) = job_runners(jobs_of(Counting(), every="1h"), around, history_for=timedelta(7), clock=clock)
    with pytest.raises(psycopg.OperationalError, match="the third one"):
        await runner.run_once(Budget(clock.monotonic() + runner.seconds, clock.monotonic, asyncio.Event()))


@in_fake_time
async def test_a_job_has_its_whole_time_though_each_connection_took_long() -> None:
    """Two of three hosts are silent: that of the slot is made in twenty seconds, and that of the lock in as many."""
    database, jobs = Database(slow={"slot_take": 20.0}), Jobs()

    @jobs.every("1h", timeout="5s")
    async def work(_: Run) -> None:
        await asyncio.sleep(4)

    async with Process(database, jobs) as process:
        await asyncio.sleep(60)
        assert [(ended.status, ended.seconds) for ended in process.of(RunEnded)] == [(Status.DONE, 4.0)]


@in_fake_time
async def test_pruning_goes_on_behind_a_run_that_ended_late() -> None:
    """It stands among those that are over, and keeps each page from being full."""
    process = Process(Database(), jobs_of(Counting(), every="1h"))
    ask, left, pages = process.session.ask, [499, 499, 120, 0], []

    async def pruned(name: str, values: Any) -> Any:
        if name != "runs_prune":
            return await ask(name, values)
        pages.append(left.pop(0))
        return [(pages[-1],)]

    process.session.ask = pruned
    await process.run_once()
    assert pages == [499, 499, 120, 0]
