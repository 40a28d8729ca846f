"""Which runners RELAY_RUNNERS chooses, in which order."""

import json
from typing import Any

import pytest
from pydantic import SecretStr

from relay.cli.runners import RUNNERS, Kind, OneRunner, SomeJobs, unknown, workers
from relay.errors import ConfigurationError
from relay.kernel.runner import Budget, Report
from relay.kernel.shutdown import Shutdown
from relay.kernel.tick import tick
from relay.kernel.worker import Worker
from relay.settings import Settings
from relay.upkeep.jobs import Job
from relay.upkeep.run import Run
from relay.upkeep.schedule import Every
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
