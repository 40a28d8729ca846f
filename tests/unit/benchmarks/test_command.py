"""`python -m benchmarks`: which sections are measured, and which runs are kept."""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks import environment
from benchmarks.figures import Figure, Size
from benchmarks.record import Run, latest
from benchmarks.sections import NAMES
from benchmarks.stand import Calm, Plain, Stand
from tests.support.benchmarks import RUN

STAND = Stand("postgresql://u:p@127.0.0.1:1/postgres", "127.0.0.1:2", "an emulator", Plain(0), calm=Calm(9, 1))


class Section:
    """One that finds the same each time."""

    TITLE = "A section"

    def __init__(self, name: str) -> None:
        self.name = name

    def measure(self, _: object, size: Size) -> Iterator[Figure]:
        """As many values as rounds."""
        yield Figure(self.name, "400 B", "events/s", (1_000.0,) * size.rounds)


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a run is kept; nothing is started and nothing is measured."""
    path = tmp_path / "latest.json"
    store = Run.store
    monkeypatch.setattr(command, "stand", lambda: nullcontext(STAND))
    monkeypatch.setattr(command, "load", Section)
    monkeypatch.setattr(environment, "read", lambda *asked: replace(RUN.environment, sections=tuple(asked[-1])))
    monkeypatch.setattr(command, "latest", lambda: RUN)
    monkeypatch.setattr(Run, "store", lambda run: store(run, path))
    return path


def test_a_whole_run_is_kept(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the figures of all sections; that little of what is claimed was reached is no error."""
    assert command.main([]) == 0

    assert [figure.section for figure in latest(kept).figures] == list(NAMES)
    assert latest(kept).environment.calm == "the emulator, before 8 of 9 measurements"
    assert "not measured: resident memory, 400 B backlog" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--quick"], ["--only", "drain"]])
def test_a_part_is_kept_only_when_asked_for(kept: Path, arguments: list[str]) -> None:
    """It must not take the place of a whole run by accident."""
    assert command.main(arguments) == 0
    assert not kept.exists()

    assert command.main([*arguments, "--keep"]) == 0
    assert latest(kept).ratios


def test_sections_are_measured_in_the_order_that_is_asked_for(capsys: pytest.CaptureFixture[str], kept: Path) -> None:
    """Each by its name; those of the latest run that were not asked for stay."""
    assert command.main(["--only", "limit, drain", "--keep"]) == 0

    found = latest(kept)
    assert found.later[-1].sections == ("limit", "drain")
    assert [figure.name for figure in found.of("drain")] == [figure.name for figure in found.of("limit")] == ["400 B"]
    assert found.of("peers") == RUN.of("peers")
    assert "sections  limit, drain" in capsys.readouterr().out


def test_a_name_that_is_no_section_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """With those that there are."""
    with pytest.raises(SystemExit):
        command.main(["--only", "drain,speed"])

    assert f"no section is called speed; there are {', '.join(NAMES)}" in capsys.readouterr().err
