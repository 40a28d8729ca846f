"""Archives of tables that are not like others, and what is in the way of one."""

import errno
import shutil
from datetime import date, datetime
from io import BytesIO
from pathlib import Path
from tempfile import gettempdir

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from relay.errors import ArchiveError, ConfigurationError, InvariantError
from relay.upkeep.archive import directory, dropping, names, reading, rows, seal
from relay.upkeep.archive.bounds import Bounds
from relay.upkeep.archive.lock import ArchiveBusyError, alone
from relay.upkeep.archive.parquet import Digest
from relay.upkeep.archive.record import Insistence
from relay.upkeep.archive.store import Check, UnusablePlaceError
from relay.upkeep.archive.watch import StoppedError, Watch
from relay.upkeep.table_name import TableName
from tests.support.archives import (
    FIRST,
    SECOND,
    THIRD,
    Shelf,
    archive,
    connector,
    count,
    differences,
    exists,
    kept,
)

pytestmark = pytest.mark.slow("archives of every kind of table")

JANUARY = date(2026, 1, 1)
NOW = Insistence("ana", "a test")
BACK = TableName("public", "back")


@pytest.mark.parametrize(
    "name", ["Order Items", 'with "quotes"', "with.dots", "../up", ".hidden", "a/b", "ünï", "select"]
)
def test_a_table_of_any_name_is_exported_below_the_folder(database: str, tmp_path: Path, name: str) -> None:
    """Nothing leads out of it; columns may be called like keywords."""
    place = tmp_path / "files"
    place.mkdir()
    shelf = Shelf(database, '"user" bigint, "Select" timestamptz not null, "with ""quotes""" text', name=name,
                  schema="Shop", age="Select", key=("user",))  # fmt: skip
    month = shelf.month(FIRST)
    shelf.say("insert into {} values (1, '2026-01-02', 'a'), (2, '2026-01-03', null)", month)
    files = archive(database, place)

    (origin,) = files.origins(name)
    files.export(origin, JANUARY)
    files.restore(origin, JANUARY, into=BACK)

    (export,) = files.standing(origin).exports
    assert len(list(place.glob("*/*.parquet"))) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["files"]
    assert _count(database, sql.Identifier("archive", export.sealed)) == count(database, "back") == 2
    assert len(files.drop(origin, JANUARY, NOW).dropped) == 1


def test_rows_that_come_later_are_another_part(database: str, tmp_path: Path) -> None:
    """With columns that the first part had not; both come back together, or one of them."""
    shelf = Shelf(database)
    shelf.month(FIRST)
    shelf.fill(FIRST, 10)
    files = archive(database, tmp_path)
    files.export(shelf.origin, JANUARY)
    shelf.say("alter table {} add column note text", shelf.parent)
    shelf.month(FIRST)
    shelf.fill(FIRST, 5, first=100)
    shelf.say("update {} set note = 'late'", shelf.parent)

    files.export(shelf.origin, JANUARY)

    assert [(export.part, export.rows) for export in files.standing(shelf.origin).exports] == [(1, 10), (2, 5)]
    assert files.restore(shelf.origin, JANUARY, into=BACK) == 15
    assert files.restore(shelf.origin, JANUARY, into=TableName("public", "one"), part=1) == 10
    assert count(database, "back where note = 'late'") == 5
    assert count(database, "back where note is null") == 10
    assert len(files.drop(shelf.origin, JANUARY, NOW).dropped) == 2


def test_a_key_of_several_columns_is_walked_from_file_to_file(database: str, tmp_path: Path) -> None:
    """In files of few rows, each going on behind the last key."""
    shelf = Shelf(database, "age timestamptz not null, code char(3), n numeric, b bytea", key=("code", "age", "n", "b"))
    shelf.month(FIRST)
    shelf.say(
        "insert into {} select '2026-01-02'::timestamptz + i % 7 * interval '1.000001 s', 'a' || i % 3, i * 0.5, "
        "decode(to_hex(4096 + i), 'hex') from generate_series(1, 100) as i",
        shelf.parent,
    )
    kept(database, "sources_2026_01")
    files = archive(database, tmp_path, Bounds(rows=7))

    done = files.export(shelf.origin, JANUARY)
    files.restore(shelf.origin, JANUARY, into=BACK)

    assert (done.files, done.rows) == (15, 100)
    assert differences(database, "kept", "back") == 0


def test_a_partition_without_rows_has_no_file(database: str, tmp_path: Path) -> None:
    """It is verified and dropped all the same, and there is nothing to restore."""
    shelf = Shelf(database)
    for month in (FIRST, SECOND):
        shelf.month(month)
    files = archive(database, tmp_path)
    assert files.export(shelf.origin).verified == []
    shelf.fill(SECOND, 1)

    done = files.export(shelf.origin)

    assert (done.files, [export.rows for export in done.verified]) == (0, [0])
    with pytest.raises(ArchiveError, match="has no row"):
        files.restore(shelf.origin, JANUARY, into=BACK)
    assert len(files.drop(shelf.origin, JANUARY, NOW).dropped) == 1


def test_what_cannot_be_meant_is_refused_with_what_there_is(database: str, tmp_path: Path) -> None:
    """A table, a month, a part that nobody has; a table that has rows, or lacks a column."""
    shelf = Shelf(database)
    shelf.month(FIRST)
    shelf.fill(FIRST, 3)
    files = archive(database, tmp_path)

    with pytest.raises(ConfigurationError, match=r"of a table 'orders'; there are: public\.sources"):
        files.origins("orders")
    with pytest.raises(ConfigurationError, match="in 2026-02; months that wait: 2026-01"):
        files.export(shelf.origin, date(2026, 2, 1))
    with pytest.raises(ConfigurationError, match=r"nothing was exported of public\.sources in 2026-01"):
        files.restore(shelf.origin, JANUARY, into=BACK)
    files.export(shelf.origin, JANUARY)
    with pytest.raises(ConfigurationError, match="as part 7"):
        files.restore(shelf.origin, JANUARY, into=BACK, part=7)
    with pytest.raises(ConfigurationError, match=r"archive\.sources_2026_01_p1 has rows"):
        files.restore(shelf.origin, JANUARY, into=TableName("archive", "sources_2026_01_p1"))
    shelf.say("create table narrow (id bigint)")
    with pytest.raises(ConfigurationError, match="no column 'age', 'payload'"):
        files.restore(shelf.origin, JANUARY, into=TableName("public", "narrow"))
    shelf.say("create view looked_at as select 1")
    with pytest.raises(ConfigurationError, match="is no table"):
        files.restore(shelf.origin, JANUARY, into=TableName("public", "looked_at"))
    shelf.say("create table strict (id integer check (id > 7), age date, payload jsonb)")
    with pytest.raises(ArchiveError, match="does not take the rows"):
        files.restore(shelf.origin, JANUARY, into=TableName("public", "strict"))
    assert count(database, "strict") == 0


def test_a_table_of_more_columns_takes_the_rows(database: str, tmp_path: Path) -> None:
    """What the files lack has its default; what Postgres makes itself is left to it."""
    shelf = Shelf(database)
    shelf.month(FIRST)
    shelf.fill(FIRST, 3)
    files = archive(database, tmp_path)
    files.export(shelf.origin, JANUARY)
    shelf.say(
        "create table wide (note text default 'new', twice bigint generated always as (id * 2) stored, "
        "payload text generated always as (note || '!') stored, id bigint generated always as identity, "
        "age timestamptz)"
    )

    files.restore(shelf.origin, JANUARY, into=TableName("public", "wide"))

    assert count(database, "wide where payload = 'new!' and twice = 2 * id") == 3


def test_one_process_at_a_time_has_a_table_in_hand(database: str, tmp_path: Path) -> None:
    """The other one is told, and nothing was done; another table is free."""
    shelf, other = Shelf(database), Shelf(database, name="others")
    for each in (shelf, other):
        each.month(FIRST)
        each.fill(FIRST, 3)
    files = archive(database, tmp_path)

    with alone(connector(database), "public", shelf.origin), pytest.raises(ArchiveBusyError, match="another process"):
        files.export(shelf.origin, JANUARY)
    with alone(connector(database), "public", shelf.origin):
        assert files.export(other.origin, JANUARY).files == 1
    assert files.export(shelf.origin, JANUARY).files == 1


def test_whoever_has_lost_the_lock_stops(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is recorded by then is done."""
    shelf = Shelf(database)
    shelf.month(FIRST)
    shelf.fill(FIRST, 30)
    monkeypatch.setattr("relay.upkeep.archive.lock._PING_SECONDS", 0.0)

    def cut(_: str, rows: int) -> None:
        if rows == 20:
            shelf.say(
                "select pg_terminate_backend(l.pid) from pg_locks as l join pg_database as d on d.oid = l.database "
                "where l.locktype = 'advisory' and d.datname = current_database()"
            )

    with pytest.raises(ArchiveError, match="is lost"):
        archive(database, tmp_path, Bounds(rows=10)).export(shelf.origin, JANUARY, watch=Watch(tell=cut))

    (export,) = archive(database, tmp_path).standing(shelf.origin).exports
    assert export.written == 10


def test_a_session_says_something_while_a_file_is_sent(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a server with idle_session_timeout would end it, each time again, and nobody could record the file."""
    shelf = Shelf(database)
    shelf.month(FIRST)
    shelf.fill(FIRST, 3)
    monkeypatch.setattr("relay.upkeep.archive.lock._PING_SECONDS", 0.0)
    keep_at_once = directory._Part.keep
    said: list[datetime] = []

    def keep(part: directory._Part, name: str, check: Check) -> None:
        said.append(_said(database))
        check()
        said.append(_said(database))
        keep_at_once(part, name, check)

    monkeypatch.setattr(directory._Part, "keep", keep)
    archive(database, tmp_path).export(shelf.origin, JANUARY)

    before, after = said
    assert after > before


def _said(database: str) -> datetime:
    """When the session that works, and not the one that holds the lock, last said something."""
    with psycopg.connect(database) as connection:
        ((when,),) = connection.execute(
            "select query_start from pg_stat_activity "
            "where datname = current_database() and application_name = 'archive' and state = 'idle'"
        ).fetchall()
    assert isinstance(when, datetime)
    return when


def test_a_month_that_is_being_written_to_is_sealed_afterwards(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page of a mover takes a moment; a transaction that stays open is named, and nothing changes."""
    shelf = Shelf(database)
    month = shelf.month(FIRST)
    monkeypatch.setattr(seal, "_LOCK_TIMEOUT", "20ms")
    files = archive(database, tmp_path)
    with psycopg.connect(database) as writer:
        writer.execute(sql.SQL("insert into {} values (1, '2026-01-02')").format(month))
        attempts = 0

        def check() -> None:
            nonlocal attempts
            attempts += 1
            if attempts == 2:
                writer.commit()

        assert files.export(shelf.origin, JANUARY, watch=Watch(check)).rows == 1
        month = shelf.month(FIRST)
        writer.execute(sql.SQL("insert into {} values (2, '2026-01-02')").format(month))
        monkeypatch.setattr(seal, "_PAUSE", 0.0)
        with pytest.raises(ArchiveError, match="could not be sealed"):
            files.export(shelf.origin, JANUARY)
    assert len(files.standing(shelf.origin).waiting) == 1


def test_a_sealed_table_that_somebody_writes_to_is_not_dropped(database: str, tmp_path: Path) -> None:
    """Whoever insists has taken away what forbids it; it is exported again, and written to no more."""
    shelf = Shelf(database)
    shelf.month(FIRST)
    shelf.fill(FIRST, 3)
    files = archive(database, tmp_path)
    files.export(shelf.origin, JANUARY)
    shelf.say("alter table archive.sources_2026_01_p1 drop constraint sealed")
    shelf.say("insert into archive.sources_2026_01_p1 values (7, '2026-01-02')")

    (fault,) = files.drop(shelf.origin, JANUARY, NOW).faults

    assert "has 4 row(s), and its files have 3" in str(fault)
    assert files.export(shelf.origin, JANUARY, again=True).rows == 4
    with pytest.raises(psycopg.errors.CheckViolation, match="sealed"):
        shelf.say("update archive.sources_2026_01_p1 set age = age")
    assert files.export(shelf.origin, JANUARY, again=True).rows == 4
    assert len(files.drop(shelf.origin, JANUARY, NOW).dropped) == 1


def test_a_sealed_table_that_somebody_has_dropped_is_not_forgotten(database: str, tmp_path: Path) -> None:
    """Its files are what there is then; where there are none, that is a fault, and other months go on."""
    shelf = Shelf(database)
    for month in (FIRST, SECOND):
        shelf.month(month)
        shelf.fill(month, 3, first=int(month[-1]) * 100)
    files = archive(database, tmp_path)
    files.export(shelf.origin, JANUARY)
    shelf.say("drop table archive.sources_2026_01_p1")
    shelf.month(FIRST)
    shelf.fill(FIRST, 3)

    def drop(_: str, __: int) -> None:
        shelf.say("drop table archive.sources_2026_01_p2")

    with pytest.raises(ArchiveError, match="its files are what there is"):
        files.export(shelf.origin, JANUARY, again=True)
    with pytest.raises(psycopg.errors.UndefinedTable):
        files.export(shelf.origin, JANUARY, watch=Watch(tell=drop))
    done = files.export(shelf.origin, date(2026, 2, 1))
    assert (done.rows, done.faults) == (3, [])
    (fault,) = files.export(shelf.origin).faults
    assert "not all of public.sources 2026-01 part 2 was exported" in str(fault)
    assert [each.part for each in files.drop(shelf.origin, JANUARY, NOW).dropped] == [1]
    assert files.restore(shelf.origin, JANUARY, into=BACK, part=1) == 3


def test_a_sealed_table_that_somebody_reads_is_dropped_later(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for long behind us."""
    shelf = Shelf(database)
    shelf.month(FIRST)
    shelf.fill(FIRST, 3)
    files = archive(database, tmp_path)
    files.export(shelf.origin, JANUARY)
    monkeypatch.setattr("relay.upkeep.archive.dropping._LOCK_TIMEOUT", "20ms")
    with psycopg.connect(database) as reader:
        reader.execute("select from archive.sources_2026_01_p1")
        (fault,) = files.drop(shelf.origin, JANUARY, NOW).faults

    assert "has been in use" in str(fault)
    assert len(files.drop(shelf.origin, JANUARY, NOW).dropped) == 1


@pytest.mark.parametrize("type_", ["date", "timestamp", "timestamptz(0)"])
def test_months_are_known_by_any_type_of_age(database: str, tmp_path: Path, type_: str) -> None:
    """By their bounds, whatever time zone others have."""
    shelf = Shelf(database, f"id bigint, age {type_} not null, payload jsonb")
    elsewhere = make_conninfo(database, options="-c timezone=Asia/Tokyo")
    for month in (FIRST, SECOND):
        shelf.month(month)
    shelf.fill(SECOND, 1)

    done = archive(elsewhere, tmp_path).export(shelf.origin)

    assert [export.shown for export in done.verified] == ["public.sources 2026-01 part 1"]


def test_a_name_that_is_taken_is_named(database: str, tmp_path: Path) -> None:
    """Of what is to be sealed."""
    shelf = Shelf(database)
    shelf.month(FIRST)
    shelf.say("create table archive.sources_2026_01_p1 ()")

    with pytest.raises(ConfigurationError, match=r"there is a table archive\.sources_2026_01_p1"):
        archive(database, tmp_path).export(shelf.origin, JANUARY)


def test_rows_behind_the_walk_are_noticed(database: str, tmp_path: Path) -> None:
    """A row with a low key, written to a sealed table while it is exported."""
    shelf = Shelf(database)
    shelf.month(FIRST)
    shelf.fill(FIRST, 20)

    def write(_: str, rows: int) -> None:
        if rows == 20:
            shelf.say("alter table archive.sources_2026_01_p1 drop constraint sealed")
            shelf.say("insert into archive.sources_2026_01_p1 values (-7, '2026-01-02')")

    with pytest.raises(InvariantError, match=r"has 21 row\(s\), and 20 were exported"):
        archive(database, tmp_path).export(shelf.origin, JANUARY, watch=Watch(tell=write))


@pytest.mark.parametrize("place", ["directory", "bucket"])
def test_a_full_disk_is_said_and_leaves_nothing_half(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """The next call, with space, begins the file anew."""
    shelf = Shelf(database)
    shelf.month(FIRST)
    shelf.fill(FIRST, 20)
    files = archive(database, tmp_path if place == "directory" else "memory://months")

    def full(_: Digest, __: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Digest, "write", full)
        with pytest.raises(ArchiveError, match="No space left on device; make space there, and call again"):
            files.export(shelf.origin, JANUARY)

    assert list(tmp_path.glob("*/*")) == []
    assert files.export(shelf.origin, JANUARY).rows == 20


def test_a_folder_that_is_not_there_is_not_made(database: str, tmp_path: Path) -> None:
    """It may be a volume that is not mounted; also when it goes in the midst."""
    shelf = Shelf(database)
    shelf.month(FIRST)
    shelf.fill(FIRST, 20)
    place = tmp_path / "volume"
    place.mkdir()
    files = archive(database, place, Bounds(rows=10))

    def unmount(_: str, rows: int) -> None:
        if rows == 20:
            shutil.rmtree(place)

    with pytest.raises(ArchiveError, match="volume"):
        files.export(shelf.origin, JANUARY, watch=Watch(tell=unmount))
    with pytest.raises(UnusablePlaceError, match="there is no directory"):
        files.export(shelf.origin, JANUARY)

    assert not place.exists()


def test_what_a_killed_process_left_is_cleared_away(database: str, tmp_path: Path) -> None:
    """Half a file, which nobody holds."""
    shelf = Shelf(database)
    shelf.month(FIRST)
    shelf.fill(FIRST, 2)
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / ".abc.part").write_bytes(b"half")

    archive(database, tmp_path).export(shelf.origin, JANUARY)

    assert len(list((tmp_path / "sources").iterdir())) == 1


def test_names_that_are_too_long_are_cut_and_told_apart() -> None:
    """Postgres would cut them, and the end is what counts."""
    long = [f"{'ä' * 30}{end}" for end in ("a", "b")]

    cut = [names.of_part(table, JANUARY, 12) for table in long]

    assert all(len(name.encode()) <= 63 and name.endswith("_2026_01_p12") for name in cut)
    assert cut[0] != cut[1]
    assert names.of_restored("sources", JANUARY) == "sources_2026_01_restored"


def test_an_export_that_is_stopped_says_what_it_has_done(database: str, tmp_path: Path) -> None:
    """And leaves no file that is not recorded."""
    shelf = Shelf(database)
    shelf.month(FIRST)
    shelf.fill(FIRST, 30)

    def check() -> None:
        if len(list(tmp_path.glob("*/*.parquet"))) == 2:
            raise StoppedError

    done = archive(database, tmp_path, Bounds(rows=10)).export(shelf.origin, JANUARY, watch=Watch(check))

    assert (done.stopped, done.files, done.rows, done.verified) == (True, 2, 20, [])
    assert exists(database, "archive.sources_2026_01_p1")


def _count(database: str, table: sql.Identifier) -> int:
    with psycopg.connect(database) as connection:
        (found,) = connection.execute(sql.SQL("select count(*) from {}").format(table)).fetchone() or (0,)
    return int(found)


@pytest.mark.parametrize("schema", ["public", "Kinds"])
def test_a_key_of_a_type_with_an_order_of_its_own_is_walked_in_that_order(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, schema: str
) -> None:
    """Whatever schema its extension is in, and whatever else is in the key."""
    monkeypatch.setattr(rows, "GROUP_ROWS", 7)
    with psycopg.connect(database) as connection:
        connection.execute(
            f'create schema if not exists "{schema}"; create extension citext schema "{schema}"'.encode()
        )
    shelf = Shelf(database, f'tenant integer, name "{schema}".citext, age timestamptz not null', key=("tenant", "name"))
    month = shelf.month(FIRST)
    shelf.say(
        "insert into {} select n % 2, case when n % 3 = 0 then upper(letters) else letters end, '2026-01-02' "
        "from generate_series(1, 100) as n cross join lateral (select translate(n::text, '0123456789', 'abcdefghij')) "
        "as told(letters)",
        month,
    )
    files = archive(database, tmp_path)
    before = kept(database, "sources_2026_01")
    files.export(shelf.origin, JANUARY)
    assert files.restore(shelf.origin, JANUARY, into=BACK) == 100
    assert differences(database, before, "public.back") == 0


@pytest.mark.parametrize(
    "change",
    ["update {} set payload = '1' where id = 3", "insert into {} select 99, age, payload from {} where id = 4"],
)
def test_nobody_writes_to_what_is_sealed(database: str, tmp_path: Path, change: str) -> None:
    """What is dropped later is what its files have; rows may be removed, which is noticed."""
    shelf = Shelf(database)
    shelf.month(FIRST)
    shelf.fill(FIRST, 10)
    files = archive(database, tmp_path)
    files.export(shelf.origin, JANUARY)
    sealed = sql.Identifier("archive", "sources_2026_01_p1")

    with pytest.raises(psycopg.errors.CheckViolation):
        shelf.say(change, *[sealed] * change.count("{}"))
    shelf.say("delete from {} where id = 3", sealed)
    done = files.drop(shelf.origin, JANUARY, NOW)
    assert "has 9 row(s), and its files have 10" in str(done.faults[0])
    assert count(database, "archive.sources_2026_01_p1") == 9


def test_a_sealed_table_that_cannot_be_dropped_does_not_keep_the_others(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody reads it, or has made a view of it."""
    monkeypatch.setattr(dropping, "_LOCK_TIMEOUT", "20ms")
    shelf = Shelf(database)
    for number, month in enumerate((FIRST, SECOND, THIRD)):
        shelf.month(month)
        shelf.fill(month, 3, first=1 + 3 * number)
    files = archive(database, tmp_path)
    for number in (1, 2, 3):
        files.export(shelf.origin, date(2026, number, 1))
    shelf.say("create view seen as select * from archive.sources_2026_02_p1")

    with psycopg.connect(database) as reader:
        reader.execute("select from archive.sources_2026_01_p1")
        done = files.drop(shelf.origin, insistence=NOW)

    assert [export.sealed for export in done.dropped] == ["sources_2026_03_p1"]
    in_use, has_view = map(str, done.faults)
    assert "sources_2026_01_p1 has been in use" in in_use
    assert "sources_2026_02_p1 has something made of it" in has_view
    assert "view seen" in has_view or "other objects depend on it" in has_view


def test_a_row_that_was_corrected_is_not_dropped_before_it_is_in_a_file(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many rows as before, and not the same; nor where the command that writes them anew was killed."""
    shelf = Shelf(database)
    shelf.month(FIRST)
    shelf.fill(FIRST, 3)
    files = archive(database, tmp_path)
    files.export(shelf.origin, JANUARY)
    _correct(shelf)

    (fault,) = files.drop(shelf.origin, JANUARY, NOW).faults
    assert "lacks its constraint sealed" in str(fault)
    assert "--table public.sources --month 2026-01 --again" in str(fault)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("relay.upkeep.archive.record.forget_files", killed)
        with pytest.raises(KeyboardInterrupt):
            files.export(shelf.origin, JANUARY, again=True)
    assert not files.drop(shelf.origin, JANUARY, NOW).dropped

    files.export(shelf.origin, JANUARY, again=True)
    assert len(files.drop(shelf.origin, JANUARY, NOW).dropped) == 1
    files.restore(shelf.origin, JANUARY, into=BACK)
    assert count(database, "back where payload = '\"corrected\"'") == 1


def test_a_row_that_was_corrected_while_its_files_were_written_is_in_them(database: str, tmp_path: Path) -> None:
    """Also where it stood in one that was written by then; the table is sealed again before it is read."""
    shelf = Shelf(database)
    shelf.month(FIRST)
    shelf.fill(FIRST, 30)
    files = archive(database, tmp_path, Bounds(rows=10))

    def stop(_: str, rows: int) -> None:
        if rows == 20:
            raise StoppedError

    assert files.export(shelf.origin, JANUARY, watch=Watch(tell=stop)).files == 1
    _correct(shelf)

    assert files.export(shelf.origin, JANUARY).rows == 30
    with pytest.raises(psycopg.errors.CheckViolation, match="sealed"):
        shelf.say("update archive.sources_2026_01_p1 set age = age")
    files.restore(shelf.origin, JANUARY, into=BACK)
    assert differences(database, "archive.sources_2026_01_p1", "back") == 0


def test_a_month_that_cannot_be_exported_again_is_left_as_it_is(database: str, tmp_path: Path) -> None:
    """All of its parts, where the table of one of them is gone: its error says that nothing was changed."""
    shelf = Shelf(database)
    files = archive(database, tmp_path)
    for first in (1, 100):
        shelf.month(FIRST)
        shelf.fill(FIRST, 3, first=first)
        files.export(shelf.origin, JANUARY)
    shelf.say("drop table archive.sources_2026_01_p2")
    before = files.standing(shelf.origin)

    with pytest.raises(ArchiveError, match="Nothing was changed"):
        files.export(shelf.origin, JANUARY, again=True)

    assert files.standing(shelf.origin) == before


def _correct(shelf: Shelf) -> None:
    shelf.say("alter table archive.sources_2026_01_p1 drop constraint sealed")
    shelf.say("update archive.sources_2026_01_p1 set payload = '\"corrected\"' where id = 2")


def test_a_folder_for_copies_that_is_full_is_named(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is there that space is needed, and not where the file is."""
    shelf = Shelf(database)
    shelf.month(FIRST)
    shelf.fill(FIRST, 2)
    files = archive(database, tmp_path)
    files.export(shelf.origin, JANUARY)

    class Full(BytesIO):
        def write(self, _: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(reading, "TemporaryFile", Full)
    (fault,) = files.verify(shelf.origin).faults

    assert f"a copy of {files.standing(shelf.origin).exports[0].files[0].name} at {gettempdir()}: No space" in str(
        fault
    )
