"""A ladder of anything: what the outbox has, another one has in words of its own."""

from pathlib import Path

import pytest

from relay.errors import ConfigurationError, SchemaError
from relay.outbox.ladder import OUTBOX
from relay.postgres.ladder import Ladder
from relay.postgres.schema import Versions
from relay.postgres.script import Script
from tests.support.ladders import ladder_of

BOOKS = ("books", "create table shelf_books (id int);", "drop table shelf_books;")
TITLES = ("titles", "alter table shelf_books add title text;", "alter table shelf_books drop title;")


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ladder:
    """A ladder of two steps."""
    return ladder_of(tmp_path, monkeypatch, BOOKS, TITLES)


def test_its_steps_are_the_files_of_its_package(shelf: Ladder) -> None:
    """In the order of their numbers."""
    assert [(each.version, each.name, each.up, each.down) for each in shelf.migrations()] == [(1, *BOOKS), (2, *TITLES)]
    assert shelf.newest() == 2


def test_the_way_leads_up_or_down(shelf: Ladder) -> None:
    """Each step by what it does, and what it leaves in the record."""
    up, down = shelf.steps(0, 2), shelf.steps(2, 0)
    assert [str(each) for each in up] == ["up   0001 books", "up   0002 titles"]
    assert [str(each) for each in down] == ["down 0002 titles", "down 0001 books"]
    assert [each.statements for each in (*up, *down)] == [BOOKS[1], TITLES[1], TITLES[2], BOOKS[2]]
    assert [each.bookkeeping for each in (*up, *down)] == [
        "insert into shelf_migrations (version, name) values (1, 'books');",
        "insert into shelf_migrations (version, name) values (2, 'titles');",
        "delete from shelf_migrations where version = 2;",
        "drop table shelf_migrations;",
    ]
    assert shelf.steps(1, 1) == []


@pytest.mark.parametrize("version", [-1, 3, True, "1", None])
def test_a_version_that_is_none_is_refused(shelf: Ladder, version: object) -> None:
    """At either end of the way."""
    for current, target in ((version, 1), (1, version)):
        with pytest.raises(ConfigurationError, match=f"no schema version {version!r}; this code knows 0 to 2"):
            shelf.steps(current, target)  # type: ignore[arg-type]


def test_what_is_printed_speaks_of_it_alone(shelf: Ladder) -> None:
    """Nothing of the outbox's is left in it."""
    script = Script(shelf)
    texts = [script.up("public", 2), script.one_up("public", 2), script.down("public", 0), script.between("a", 1, 2)]
    assert not [text for text in texts if "events" in text or "outbox_" in text or "RELAY" in text]
    assert all("do $shelf$\n" in text for text in texts)
    assert script.version_table('a"b') == '"a""b".shelf_migrations'
    assert "shelf migrate --sql --from VERSION" in texts[3]
    assert "books that were put there meanwhile" in texts[2]
    assert "migrate as the owner of the shelf." in texts[0]


def test_a_step_is_quoted_by_what_does_not_end_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever quotes a later migration has of its own."""
    hostile = "do $step$ begin end $step$; -- $shelf$ $step_$"
    text = Script(ladder_of(tmp_path, monkeypatch, ("hostile", hostile, "select 1;"))).up("public", 1)
    assert f"execute $step__$\n{hostile}\n$step__$;" in text
    assert text.startswith("do $shelf_$\n")
    assert text.endswith("\n$shelf_$;\n")


def test_a_version_that_does_not_fit_is_refused_with_its_own_command(shelf: Ladder) -> None:
    """One below the code's own, and one above it, do fit."""
    versions = Versions(shelf)
    with pytest.raises(SchemaError, match="database 'd' has no shelf in schema 's'; create it with: shelf migrate"):
        versions.suitable(0, "s", "d")
    with pytest.raises(SchemaError, match="at version 4, newer than the 2 of this code"):
        versions.suitable(4, "s", "d")
    with pytest.raises(SchemaError, match=r"lending needs version 2 of schema 's'.*bring it up with: shelf migrate"):
        versions.refuse_older(1, "s", 2, "lending")
    assert [versions.suitable(each, "s", "d") for each in (1, 2, 3)] == [1, 2, 3]


def test_two_ladders_share_no_lock_and_no_table(shelf: Ladder) -> None:
    """Each may be climbed while the other is."""
    assert shelf.lock != OUTBOX.lock
    assert not shelf.tables & OUTBOX.tables


def test_the_record_is_among_what_the_steps_make() -> None:
    """Or another tool would take it for its own."""
    assert OUTBOX.record in OUTBOX.tables
