"""Which runners RELAY_RUNNERS chooses, in which order."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest
from pydantic import SecretStr

from relay.cli import main, run, runners
from relay.cli.runners import RUNNERS, Kind, OneRunner, SomeJobs, our_jobs, pace, unknown, workers
from relay.errors import ConfigurationError
from relay.kernel.runner import Budget, Report
from relay.kernel.shutdown import Shutdown
from relay.kernel.tick import TickReport, tick
from relay.kernel.worker import Worker
from relay.settings import Settings
from relay.upkeep.building import job_runners
from relay.upkeep.jobs import Job
from relay.upkeep.run import Run
from relay.upkeep.schedule import Every
from relay.upkeep.table import Table
from tests.unit.kernel.fakes import FakeClock, FakeRunner, in_fake_time


async def no_database() -> Any:
    """Nothing here connects."""
    raise AssertionError


async def all_items(budget: Budget) -> Report:
    """Work through as many items as a pass may."""
    return Report(processed=budget.items or 0)


async def idle(_: Run) -> None:
    """A job that has nothing to do."""


def table(*names: str) -> dict[str, Kind]:
    """A table of runners that do nothing but count; publish is bounded by time alone, as in the real one."""
    return {
        name: OneRunner(lambda *_, name=name: FakeRunner(all_items, name=name), by_time_alone=name == "publish")
        for name in names
    }


def chosen_by(text: str, *known: str) -> list[Worker]:
    """What RELAY_RUNNERS makes of a table."""
    settings = Settings.model_construct(relay_runners=text)
    return workers(settings, no_database, FakeClock(), lambda _: None, table(*known))


@in_fake_time
async def test_a_tick_calls_the_chosen_ones_in_the_settings_order_with_their_items() -> None:
    """One that is not named does not run; one that is named twice runs once."""
    ticked = await tick(
        chosen_by(" export, publish ,export,", "publish", "other", "export"), Shutdown(), FakeClock(), 9, 9
    )

    runners = json.loads(json.dumps(ticked.as_json()))["runners"]
    assert [(name, report["processed"]) for name, report in runners.items()] == [("export", 200), ("publish", 0)]


def test_an_unknown_name_is_left_out_and_told_with_the_known_ones() -> None:
    """A newer release's configuration does not stop this one."""
    assert [worker.runner.name for worker in chosen_by("publsh,publish", "publish")] == ["publish"]
    assert unknown(Settings.model_construct(relay_runners="publsh,publish"), RUNNERS) == [
        (
            "RELAY_RUNNERS names 'publsh', which is no runner of this release and is left out; "
            f"did you mean publish? known: {', '.join(RUNNERS)}"
        )
    ]


def test_no_known_runner_at_all_is_refused() -> None:
    """A relay that does nothing would look like one that works."""
    with pytest.raises(ConfigurationError) as refusal:
        chosen_by("retention", "publish")
    assert str(refusal.value) == (
        "RELAY_RUNNERS is 'retention' and names no runner of this release; choose from: publish"
    )


def test_jobs_are_runners_each_in_the_place_of_its_kind() -> None:
    """Where they are the publisher's neighbours, and where there are none."""

    def job(name: str) -> Job:
        return Job(name, Every.of("1h"), idle, 60.0)

    known: dict[str, Kind] = {
        **table("publish"),
        "retention": SomeJobs(lambda _: [job("relay.retention")]),
        "jobs": SomeJobs(lambda _: [job("a"), job("b")]),
        "none": SomeJobs(lambda _: []),
    }

    def names(text: str) -> list[str]:
        settings = Settings.model_construct(relay_runners=text, database_url=SecretStr("postgresql://h/db"))
        return [worker.runner.name for worker in workers(settings, no_database, FakeClock(), lambda _: None, known)]

    assert names("jobs,publish,none,retention") == ["job:a", "job:b", "publish", "job:relay.retention"]
    with pytest.raises(ConfigurationError, match="RELAY_RUNNERS is 'none', and there is no job to run: name yours in"):
        names("none")


@in_fake_time
async def test_publishing_is_bounded_by_its_time_alone() -> None:
    """As the real table of runners has it: a backlog of any size goes out in one pass."""
    publish = RUNNERS["publish"]
    assert isinstance(publish, OneRunner)
    known: dict[str, Kind] = {"publish": replace(publish, build=lambda *_: FakeRunner(bounds, name="publish"))}
    given: list[int | None] = []

    async def bounds(budget: Budget) -> Report:
        given.append(budget.items)
        return Report()

    await tick(
        workers(Settings.model_construct(relay_runners="publish"), no_database, FakeClock(), lambda _: None, known),
        Shutdown(),
        FakeClock(),
        9,
        9,
    )
    assert given == [None]


@pytest.mark.parametrize(
    ("given", "bounds"),
    [({}, (480.0, 60.0)), ({"RELAY_TICK_MAX_MS": "90s", "RELAY_RUNNER_MAX_MS": "30s"}, (90.0, 30.0))],
    ids=["as it is", "as it is set"],
)
def test_a_tick_has_eight_minutes_and_each_runner_one(
    given: dict[str, str], bounds: tuple[float, float], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """Unless the settings say otherwise; each in its own place."""
    monkeypatch.chdir(tmp_path)  # away from anybody's .env
    for name, value in {
        "DATABASE_URL": "postgresql://u@127.0.0.1:1/none",
        "PUBSUB_PROJECT_ID": "p",
        "PUBSUB_EMULATOR_HOST": "127.0.0.1:1",
        "RELAY_RUNNERS": "publish",
        "RELAY_TICK_MAX_MS": "",
        "RELAY_RUNNER_MAX_MS": "",
        **given,
    }.items():
        monkeypatch.setenv(name, value)
    found: list[tuple[float, float]] = []

    async def ticked(_: Sequence[Worker], __: Shutdown, ___: object, overall: float, each: float) -> TickReport:
        found.append((overall, each))
        return TickReport({}, 0.0)

    monkeypatch.setattr(run, "tick", ticked)
    assert main(["tick"]) == 0
    assert found == [bounds]


async def test_the_job_of_the_retention_is_as_the_settings_say() -> None:
    """Every ten minutes, of what was published so long ago, and to where it is to go."""
    moved: list[Table] = []

    class Moving:
        async def move(self, table: Table) -> None:
            moved.append(table)

    (job,) = our_jobs(
        Settings.model_construct(relay_schema="shop", relay_retention=timedelta(days=3), relay_retention_to="archive")
    )
    await job.work(cast("Run", Moving()))
    assert (job.name, job.schedule) == ("relay.retention", Every(timedelta(minutes=10)))
    assert [(str(each.place), each.age, each.older_than, each.to) for each in moved] == [
        ("shop.outbox_events", "published_at", timedelta(days=3), "archive")
    ]


def test_jobs_are_paced_and_their_history_is_kept_as_the_settings_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """Like any runner but publish; and for RELAY_RUNS_RETENTION."""
    found: list[timedelta] = []

    def built(*given: Any, **named: Any) -> Any:
        found.append(named["history_for"])
        return job_runners(*given, **named)

    monkeypatch.setattr(runners, "job_runners", built)
    settings = Settings.model_construct(
        relay_runners="jobs",
        relay_runs_retention=timedelta(days=2),
        relay_error_backoff_ms=timedelta(seconds=7),
        database_url=SecretStr("postgresql://h/db"),
    )
    known: dict[str, Kind] = {"jobs": SomeJobs(lambda _: [Job("a", Every.of("1h"), idle, 60.0)])}
    (worker,) = workers(settings, no_database, FakeClock(), lambda _: None, known)
    assert worker.runner.pace == pace(settings)
    assert worker.runner.pace.error.first == 7.0
    assert found == [timedelta(days=2)]
