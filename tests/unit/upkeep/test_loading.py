"""What RELAY_APP names, and what is said where it names no jobs."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from relay.errors import ConfigurationError
from relay.upkeep.loading import load_jobs

SHOP = """
from relay.upkeep import Jobs
jobs = Jobs()
@jobs.every("2m")
async def ingest(run): ...
both = [jobs, jobs]
"""
HEAD = "from relay.upkeep import Jobs\njobs = Jobs()\n"
MISTAKES = {
    "bare_every": "@jobs.every\nasync def ingest(run): ...\n",
    "bare_cron": "@jobs.cron\nasync def ingest(run): ...\n",
    "no_run": "@jobs.every('2m')\nasync def ingest(): ...\n",
    "more": "@jobs.every('2m')\nasync def ingest(run, more): ...\n",
    "words": "@jobs.every('2 minutes')\nasync def ingest(run): ...\n",
    "minute": "@jobs.cron('99 3 * * *')\nasync def ingest(run): ...\n",
    "never": "@jobs.cron('0 0 31 2 *')\nasync def ingest(run): ...\n",
}
WRONG = """
from relay.upkeep import Jobs
jobs = Jobs()
@jobs.every("2m")
def ingest(run): ...
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A working directory with modules, as a user has it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "an_upkeep.py").write_text(SHOP)
    (tmp_path / "a_wrong_upkeep.py").write_text(WRONG)
    for name, text in MISTAKES.items():
        (tmp_path / f"{name}_upkeep.py").write_text(HEAD + text)
    known = set(sys.modules)
    yield
    for name in set(sys.modules) - known:
        del sys.modules[name]


def test_jobs_are_found_in_the_working_directory() -> None:
    """By the module and the name in it; where nothing is named there are none."""
    assert [job.name for job in load_jobs("an_upkeep:jobs")] == ["ingest"]
    assert list(load_jobs("")) == []


@pytest.mark.parametrize(
    ("app", "sentence"),
    [
        (
            "an_upkeep",
            "RELAY_APP: 'an_upkeep' names no jobs; write the module and the name in it, like shop.upkeep:jobs",
        ),
        ("no_module:jobs", "RELAY_APP: 'no_module:jobs': there is no module no_module; run the command in the folder"),
        (
            "an_upkeep:ingest",
            "RELAY_APP: 'an_upkeep:ingest': the module has a function of that name, no Jobs; it has an_upkeep:jobs",
        ),
        ("an_upkeep:both", "RELAY_APP: 'an_upkeep:both': the module has a list of that name, no Jobs"),
        (
            "bare_every_upkeep:jobs",
            "RELAY_APP: 'bare_every_upkeep:jobs': @jobs.every needs an interval; write it like @jobs.every(\"2m\")",
        ),
        (
            "bare_cron_upkeep:jobs",
            "RELAY_APP: 'bare_cron_upkeep:jobs': @jobs.cron needs an expression; write it like ",
        ),
        ("no_run_upkeep:jobs", "RELAY_APP: 'no_run_upkeep:jobs': job 'ingest' does not take the run that it is called"),
        ("more_upkeep:jobs", "RELAY_APP: 'more_upkeep:jobs': job 'ingest' does not take the run that it is called"),
        (
            "words_upkeep:jobs",
            "RELAY_APP: 'words_upkeep:jobs': job 'ingest': '2 minutes' is no interval; write it like 30s, 2m or 24h",
        ),
        (
            "minute_upkeep:jobs",
            "RELAY_APP: 'minute_upkeep:jobs': job 'ingest': expression is '99 3 * * *', which has a wrong minute ",
        ),
        (
            "never_upkeep:jobs",
            "RELAY_APP: 'never_upkeep:jobs': job 'ingest': expression is '0 0 31 2 *', which names a day that its ",
        ),
        ("a_wrong_upkeep:jobs", "RELAY_APP: 'a_wrong_upkeep:jobs': job 'ingest' is no `async def`; write one, "),
    ],
)
def test_a_name_that_leads_to_no_jobs_is_told_with_the_reason(app: str, sentence: str) -> None:
    """What a job is refused for is told in its own words."""
    with pytest.raises(ConfigurationError) as refusal:
        load_jobs(app)

    assert str(refusal.value).startswith(sentence)


def test_a_job_that_is_refused_is_told_with_the_line_that_has_it() -> None:
    """The user's own, and not that of the code that refused it."""
    with pytest.raises(ConfigurationError, match=r"\(raised at a_wrong_upkeep:4\)$"):
        load_jobs("a_wrong_upkeep:jobs")
