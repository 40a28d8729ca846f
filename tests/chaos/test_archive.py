"""An export that is killed, at every step and at any time: no row is lost or doubled, and no file is but whole ones.

`make chaos` has a million rows, in 300 MB of memory, and twenty kills.
"""

import os
import random
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL

import psutil
import pytest

from relay.upkeep.archive.crash_points import Point
from relay.upkeep.table_name import TableName
from tests.chaos.dying_archive import MONTH, ORIGIN
from tests.support.archives import FIRST, Shelf, archive, count, differences, exists, kept
from tests.support.chaos import sized
from tests.support.commands import ROOT
from tests.support.forked import Forked

ROWS = sized(60_000, 1_000_000)
FILES = sized(4, 16)
KILLS = sized(4, 20)
MOST_MEMORY = 300 * 10**6
SECONDS = 120.0
# Compressed, about.
BYTES_A_ROW = 45

pytestmark = pytest.mark.timeout(600)


def _shelf(database: str, rows: int) -> Shelf:
    shelf = Shelf(database)
    shelf.month(FIRST)
    shelf.fill(FIRST, rows, size=400)
    kept(database, "sources_2026_01")
    return shelf


def _process(database: str, place: Path, rows: int, point: Point | None = None) -> Forked:
    words = ["archive", point.value if point else "nowhere", database, str(place), str(rows)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return Forked("tests.chaos.dying_archive:main", words, env=environment, cwd=place.parent, log=place.parent / "log")


def _require_whole(database: str, place: Path) -> None:
    """What was exported is what there was, and there are no other files."""
    files = archive(database, place)
    (export,) = files.standing(ORIGIN).exports
    files.restore(ORIGIN, MONTH, into=TableName("public", "after"))
    assert differences(database, "kept", "after") == 0
    assert export.written == export.rows == count(database, "kept")
    assert {file.name for file in export.files} == {str(path.relative_to(place)) for path in place.glob("*/*")}
    assert not exists(database, f"archive.{export.sealed}")


@pytest.mark.slow("a kill at every step")
@pytest.mark.parametrize("point", Point)
def test_a_month_goes_on_wherever_it_was_killed(database: str, tmp_path: Path, point: Point) -> None:
    """At the first time that it comes by the place, and at the next one, if there is one."""
    place = tmp_path / "files"
    place.mkdir()
    _shelf(database, 2_000)

    with _process(database, place, 500, point) as process:
        assert process.wait(SECONDS) == -SIGKILL, (tmp_path / "log").read_text()
    with _process(database, place, 500, point) as process:
        assert process.wait(SECONDS) in {0, -SIGKILL}, (tmp_path / "log").read_text()
    with _process(database, place, 500) as process:
        assert process.wait(SECONDS) == 0, (tmp_path / "log").read_text()

    _require_whole(database, place)


def test_an_export_that_is_killed_again_and_again_ends(database: str, tmp_path: Path) -> None:
    """At any moment of the file in hand, and all of it in little memory."""
    place = tmp_path / "files"
    place.mkdir()
    _shelf(database, ROWS)
    dice = random.Random(20)  # noqa: S311 -- the same kills each time
    most = 0

    for _ in range(KILLS):
        enough = _written(place) + dice.randrange(2 * ROWS // FILES * BYTES_A_ROW)
        with _process(database, place, ROWS // FILES) as process:
            while process.poll() is None and _written(place) < enough:
                most = max(most, _memory(process))
            process.kill()
    with _process(database, place, ROWS // FILES) as process:
        while process.poll() is None:
            most = max(most, _memory(process))
        assert process.wait(SECONDS) == 0, (tmp_path / "log").read_text()

    print(f"{ROWS:,} rows, {KILLS} kills, at most {most / 1e6:.1f} MB")  # noqa: T201 -- the figure itself
    assert 0 < most < MOST_MEMORY
    _require_whole(database, place)


def _written(place: Path) -> int:
    """The bytes of all files, and of those in hand."""
    sizes = 0
    for path in place.glob("*/*"):
        with suppress(FileNotFoundError):
            sizes += path.stat().st_size
    return sizes


def _memory(process: Forked) -> int:
    with suppress(psutil.NoSuchProcess):
        return int(psutil.Process(process.pid).memory_info().rss)
    return 0
