"""Months of an archive, from the partition to the file, and back, on a real Postgres and a local folder."""

from datetime import date
from pathlib import Path

import psycopg
import pytest

from relay.upkeep.archive.record import Insistence
from relay.upkeep.table_name import TableName
from tests.support.archives import FIRST, SECOND, THIRD, Shelf, archive, differences, exists, kept

JANUARY = date(2026, 1, 1)


def test_months_that_are_over_are_exported_and_verified(database: str, tmp_path: Path) -> None:
    """The newest month that has rows is still written to; later ones that have none do not count."""
    shelf = Shelf(database)
    for month in (FIRST, SECOND, THIRD):
        shelf.month(month)
    shelf.fill(FIRST, 100)
    shelf.fill(SECOND, 10, first=1000)
    files = archive(database, tmp_path)

    done = files.export(shelf.origin)

    standing = files.standing(shelf.origin)
    (export,) = standing.exports
    assert (done.files, done.rows, [part.shown for part in done.verified]) == (
        1,
        100,
        ["public.sources 2026-01 part 1"],
    )
    assert (export.sealed, export.rows, export.state.value) == ("sources_2026_01_p1", 100, "verified")
    assert export.drop_eligible_at
    assert export.verified_at
    assert (export.drop_eligible_at - export.verified_at).days == 30
    assert [partition.month.month for partition in standing.waiting] == [2, 3]
    assert (tmp_path / export.files[0].name).stat().st_size == export.size == done.bytes


def test_a_month_comes_back_as_it_was(database: str, tmp_path: Path) -> None:
    """Before it is dropped, and after."""
    shelf = Shelf(database)
    shelf.month(FIRST)
    shelf.fill(FIRST, 1000)
    kept(database, "sources_2026_01")
    files = archive(database, tmp_path)
    files.export(shelf.origin, JANUARY)

    before = files.restore(shelf.origin, JANUARY, into=TableName("public", "before"))
    dropped = files.drop(shelf.origin, JANUARY, Insistence("ana", "a test")).dropped
    after = files.restore(shelf.origin, JANUARY, into=TableName("public", "after"))

    assert (before, after, len(dropped)) == (1000, 1000, 1)
    assert differences(database, "kept", "before") == differences(database, "kept", "after") == 0
    assert not exists(database, "archive.sources_2026_01_p1")
    (export,) = files.standing(shelf.origin).exports
    assert (export.state.value, export.dropped_by, export.dropped_why) == ("dropped", "ana", "a test")


def test_nothing_is_dropped_before_its_time(database: str, tmp_path: Path) -> None:
    """Thirty days after it was verified, and not an hour earlier."""
    shelf = Shelf(database)
    shelf.month(FIRST)
    shelf.fill(FIRST, 5)
    files = archive(database, tmp_path)
    files.export(shelf.origin, JANUARY)
    early = files.drop(shelf.origin).dropped
    with psycopg.connect(database) as connection:
        connection.execute("update archive_exports set drop_eligible_at = clock_timestamp() - interval '1 second'")

    done = files.drop(shelf.origin)

    (export,) = files.standing(shelf.origin).exports
    assert (early, len(done.dropped), export.dropped_by) == ([], 1, None)
    assert not exists(database, "archive.sources_2026_01_p1")


@pytest.mark.parametrize("harm", ["missing", "changed", "cut"])
def test_a_file_that_is_not_what_was_written_keeps_the_rows(database: str, tmp_path: Path, harm: str) -> None:
    """Nothing is dropped, the error says what to do, and that helps."""
    shelf = Shelf(database)
    shelf.month(FIRST)
    shelf.fill(FIRST, 5)
    files = archive(database, tmp_path)
    (verified,) = files.export(shelf.origin, JANUARY).verified
    path = tmp_path / verified.files[0].name
    content = bytearray(path.read_bytes())
    match harm:
        case "missing":
            path.unlink()
        case "changed":
            content[40] ^= 1
            path.write_bytes(content)
        case _:
            path.write_bytes(content[:-1])

    done = files.drop(shelf.origin, None, Insistence("ana", "a test"))

    (fault,) = done.faults
    assert "--table public.sources --month 2026-01 --again" in str(fault)
    assert not done.dropped
    assert exists(database, "archive.sources_2026_01_p1")
    assert str(files.verify(shelf.origin).faults) == str(done.faults)
    files.export(shelf.origin, JANUARY, again=True)
    assert not files.verify(shelf.origin).faults
    assert len(files.drop(shelf.origin, None, Insistence("ana", "a test")).dropped) == 1
