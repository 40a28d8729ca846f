"""Ladders of a test's own: the steps are files of a package that it makes."""

from pathlib import Path

import pytest

from relay.postgres.ladder import Ladder


def ladder_of(folder: Path, monkeypatch: pytest.MonkeyPatch, *steps: tuple[str, str, str]) -> Ladder:
    """The ladder of a shelf, each step by its name and its two halves; `folder` is a test's, for its name is unique."""
    package = f"shelf_in_{folder.name}"
    migrations = folder / package / "migrations"
    migrations.mkdir(parents=True)
    for version, (name, up, down) in enumerate(steps, start=1):
        (migrations / f"{version:04d}_{name}.up.sql").write_text(up)
        (migrations / f"{version:04d}_{name}.down.sql").write_text(down)
    monkeypatch.syspath_prepend(folder)
    return Ladder(
        name="shelf",
        package=package,
        tables=frozenset({"shelf_books", "shelf_migrations"}),
        lock=(0x7368656C, 0x6D696772),
        command="shelf migrate",
        setting="SHELF_SCHEMA",
        rights="ask the librarian",
        in_use="somebody stands on it",
        stored="books that were put there",
    )
