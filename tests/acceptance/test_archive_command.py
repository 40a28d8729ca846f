"""`relay archive` as an operator runs it: exit codes, words, JSON, and what docs/archive.md shows."""

import json
import re
import shlex
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from relay.cli.main import _parser
from relay.outbox.grants import Role
from tests.support.archives import FIRST, SECOND, Shelf, count, differences, exists, kept
from tests.support.commands import ROOT, Commands
from tests.support.roles_of_tests import ROLES, as_relay, as_viewer

PAGE = ROOT / "docs/archive.md"
NOW = ("--now", "--reason", "ticket 815", "--by", "ana")


@pytest.fixture
def shelf(database: str) -> Shelf:
    """January has 100 rows, February one."""
    shelf = Shelf(database)
    shelf.month(FIRST)
    shelf.month(SECOND)
    shelf.fill(FIRST, 100)
    shelf.fill(SECOND, 1, first=1000)
    return shelf


@pytest.fixture
def relay(database: str, tmp_path: Path) -> Commands:
    """It needs no broker, and no outbox that is up to date."""
    place = tmp_path / "files"
    place.mkdir()
    return Commands({"DATABASE_URL": database, "ARCHIVE_BUCKET": str(place)}, tmp_path)


@pytest.mark.usefixtures("shelf")
def test_a_month_goes_all_its_way(relay: Commands, database: str) -> None:
    """From the partition to the file, out of the database, and back."""
    kept(database, "sources_2026_01")
    export = relay("archive", "export")
    assert (export.returncode, export.stderr) == (0, "")
    assert re.fullmatch(
        r"public\.sources: 100 row\(s\) in 1 file\(s\), [\d.]+ kB\n"
        r"  2026-01 part 1: 100 row\(s\), 1 file\(s\) verified\n",
        export.stdout,
    )
    assert relay("archive", "export").stdout == "public.sources: nothing to export\n"
    assert re.fullmatch(
        r"public\.sources: nothing was dropped\n  2026-01 part 1 stays until \d{4}-\d\d-\d\d, unless --now .*\n",
        relay("archive", "drop").stdout,
    )
    verify = relay("archive", "verify", "--table", "sources")
    assert verify.stdout.startswith("public.sources: 1 of 1 part(s) read back as written\n")

    early = relay("archive", "drop", "--table", "sources", "--month", FIRST, *NOW)
    restored = relay("archive", "restore", "sources", FIRST)
    again = relay("archive", "restore", "sources", FIRST)

    assert (early.returncode, early.stdout.splitlines()[0]) == (0, "public.sources: 1 part(s) dropped"), early.stderr
    assert restored.stdout == "100 row(s) of public.sources 2026-01 are in archive.sources_2026_01_restored\n"
    assert differences(database, "kept", "archive.sources_2026_01_restored") == 0
    assert (again.returncode, again.stderr.count("has rows")) == (2, 1)
    assert relay("archive", "restore", "public.sources", FIRST, "--into", "elsewhere").returncode == 0
    late = relay("archive", "export", "--table", "sources", "--month", FIRST, "--again")
    assert (late.returncode, "nowhere else" in late.stderr) == (1, True)
    assert "2026-01 part 1 was dropped on" in relay("archive", "drop", "--table", "sources", "--month", FIRST).stdout
    assert count(database, "elsewhere") == 100


def test_status_tells_what_there_is_and_what_waits(relay: Commands, shelf: Shelf) -> None:
    """For people, and for scripts."""
    before = relay("archive", "status").stdout
    relay("archive", "export")
    shelf.say("analyze archive.sources")

    after = relay("archive", "status").stdout
    told = json.loads(relay("archive", "status", "--json", "--table", "sources").stdout)

    assert before.splitlines() == [
        "public.sources",
        "  2026-01 waits: rows not counted yet",
        "  2026-02 waits: rows not counted yet",
    ]
    assert re.fullmatch(
        r"public\.sources\n"
        r"  2026-01 part 1  verified, may be dropped from \d{4}-\d\d-\d\d +100 row\(s\) +[\d.]+ kB  1 file\(s\)\n"
        r"  2026-02 waits: about 1 row\(s\)\n",
        after,
    )
    (table,) = told["tables"]
    (export,) = table["exports"]
    (file,) = export["files"]
    assert (table["table"], table["waiting"][0]["month"], table["waiting"][0]["rows_estimate"]) == (
        "public.sources",
        SECOND,
        1,
    )
    assert (export["month"], export["part"], export["state"], export["rows"]) == (FIRST, 1, "verified", 100)
    assert (export["sealed"], export["eligible"], export["dropped_at"]) == ("sources_2026_01_p1", False, None)
    assert (file["rows"], len(file["sha256"])) == (100, 64)


@pytest.mark.usefixtures("shelf")
def test_a_file_that_is_gone_fails_and_says_what_helps(relay: Commands, database: str, tmp_path: Path) -> None:
    """Nothing is dropped; the command in the error writes it anew."""
    relay("archive", "export")
    (file,) = (tmp_path / "files").glob("*/*")
    file.unlink()

    reader = relay("archive", "verify", DATABASE_URL=as_viewer(database))
    assert (reader.returncode, "is missing at" in reader.stderr) == (1, True)
    assert "still counts as verified: role" in reader.stderr
    failed = relay("archive", "drop", "--table", "sources", "--month", FIRST, *NOW)
    checked = relay("archive", "verify")

    assert (failed.returncode, checked.returncode) == (1, 1)
    assert "relay archive export --table public.sources --month 2026-01 --again" in failed.stderr
    assert "public.sources: 0 of 1 part(s) read back" in checked.stdout
    assert "2026-01 part 1  sealed, not verified " in relay("archive", "status").stdout
    assert "part 1 stays: not all of its files" in relay("archive", "drop").stdout
    assert exists(database, "archive.sources_2026_01_p1")
    again = relay("archive", "export", "--table", "public.sources", "--month", "2026-01", "--again")
    assert (again.returncode, file.exists()) == (0, True), again.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["export", "--month", "2026-01"], "--month goes with --table"),
        (["export", "--month", "January", "--table", "sources"], "'January' is no month; write it like 2026-01"),
        (["export", "--table", "orders"], "nothing was archived of a table 'orders'; there are: public.sources"),
        (["export", "--table", "sources", "--month", "2027-01"], "months that wait: 2026-01, 2026-02"),
        (["export", "--again"], "--again goes with --table and --month"),
        (["drop", "--now"], "--now and --reason go together"),
        (["drop", "--now", "--reason", "a test"], "--now goes with --table and --month"),
        (
            ["drop", "--table", "sources", "--month", "2026-01", *NOW],
            "nothing was exported of public.sources in 2026-01",
        ),
        (["verify", "--table", "sources", "--month", "2026-01"], "nothing was exported of public.sources in 2026-01"),
        (["restore", "sources", "2026-01"], "nothing was exported of public.sources in 2026-01"),
        (["restore", "sources", "2026-01", "--into", "a.b.c"], "is no name of a table"),
        (["status", "--table", "nothing"], "nothing was archived of a table 'nothing'"),
    ],
)
@pytest.mark.usefixtures("shelf")
def test_a_wrong_call_is_told_in_a_sentence(relay: Commands, words: list[str], said: str) -> None:
    """And changes nothing."""
    ended = relay("archive", *words)

    assert ended.returncode == 2
    assert said in ended.stderr
    assert ended.stdout == ""


@pytest.mark.usefixtures("shelf")
def test_what_is_missing_is_named(relay: Commands, bare_database: str) -> None:
    """A place, a directory, tables."""
    assert "ARCHIVE_BUCKET is not set" in relay("archive", "export", ARCHIVE_BUCKET="").stderr
    for place, said in (("/nowhere", "there is no directory /nowhere"), ("/proc", "no file can be written to /proc/")):
        ended = relay("archive", "export", ARCHIVE_BUCKET=place)
        assert (ended.returncode, ended.stderr.count(said)) == (2, 1), ended.stderr
    away = relay("archive", "status", DATABASE_URL=bare_database)
    assert (away.returncode, "has no table archive_exports" in away.stderr) == (2, True)


@pytest.mark.usefixtures("shelf")
def test_a_viewer_sees_how_archives_stand(database: str, tmp_path: Path) -> None:
    """With the rights that relay grants gives, and none on the schema archive."""
    relay = Commands({"DATABASE_URL": as_viewer(database)}, tmp_path)

    said = relay("archive", "status")
    refused = relay("archive", "export", "--table", "sources", ARCHIVE_BUCKET=str(tmp_path))

    assert "2026-02 waits" in said.stdout, said.stderr
    assert refused.returncode == 2
    assert "may not do that" in refused.stderr
    with psycopg.connect(database) as connection:
        assert connection.execute("select count(*) from archive_exports").fetchone() == (0,)


def test_the_relays_own_role_exports_what_it_owns(database: str, tmp_path: Path) -> None:
    """With the rights that docs/archive.md lists."""
    with psycopg.connect(database) as owner:
        owner.execute("create schema archive")
        owner.execute(
            sql.SQL("grant create on database {} to {}").format(
                sql.Identifier(owner.info.dbname), sql.Identifier(ROLES.name(Role.RELAY))
            )
        )
        owner.execute(
            sql.SQL("grant usage, create on schema archive to {}").format(sql.Identifier(ROLES.name(Role.RELAY)))
        )
    shelf = Shelf(as_relay(database))
    shelf.month(FIRST)
    shelf.fill(FIRST, 10)
    relay = Commands({"DATABASE_URL": as_relay(database), "ARCHIVE_BUCKET": str(tmp_path)}, tmp_path)

    ended = [
        relay("archive", "export", "--table", "sources", "--month", FIRST),
        relay("archive", "restore", "sources", FIRST),
        relay("archive", "drop", "--table", "sources", "--month", FIRST, *NOW),
    ]

    assert [each.returncode for each in ended] == [0, 0, 0], [each.stderr for each in ended]
    assert count(database, "archive.sources_2026_01_restored") == 10


def test_the_page_shows_commands_that_there_are() -> None:
    """Each is understood."""
    shown = [line.strip() for line in PAGE.read_text().splitlines() if line.startswith("    python -m relay archive")]

    assert len(shown) >= 8
    for line in shown:
        assert callable(_parser().parse_args(shlex.split(line)[3:]).command)


def test_a_table_that_the_page_restores_takes_its_rows_back(relay: Commands, shelf: Shelf, database: str) -> None:
    """By the statement that the page shows."""
    (statement,) = re.findall(r"(?ms)^insert into sources [^;]*;$", PAGE.read_text())
    relay("archive", "export")
    relay("archive", "restore", "sources", FIRST)
    shelf.say(
        "create table sources (id bigint generated always as identity primary key, age timestamptz, payload jsonb, "
        "size int generated always as (length(payload ->> 'n')) stored)"
    )

    shelf.say(statement)

    assert count(database, "sources") == 100
