"""The example of notifications with its process killed in each of its cycles: what is promised is counted."""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet
import pytest

from examples.notifications import outside
from examples.notifications.__main__ import CONSUMER
from examples.programs import equipped
from tests.support.mortal import Mortal
from tests.support.notifications import asked, environment_of, held, outside_at_work, waits
from tests.support.waiting import until

# Where one phone of each kind is in each of two regions.
ENDS = {
    "ok": "ok",
    "again": "ok",
    "gone": "invalid",
    "never": "dead",
    "later-ok": "ok",
    "later-again": "ok",
    "later-gone": "invalid",
    "later-never": "dead",
    "later-silent": "unknown",
    "muted": "skipped",
}
AT_WORK = "select count(*) = 0 from inbox_deliveries where state in ('pending', 'processing')"
ASKED_ABOUT = (
    "select count(*) > 0 from inbox_deliveries where state = 'sent' and available_at > now() + interval '1 minute'"
)
OVERLAPS = """
select count(*) from relay_runs as one join relay_runs as other on one.job = other.job and one.id < other.id
 where one.status <> 'killed' and one.finished_at > other.started_at
"""
OLD = """
insert into sources (service, number, storm, read_at)
select 'old', n, 'old', now() - interval '14 months' - n % 3 * interval '31 days' from generate_series(1, 3000) as n
"""
Database = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture
def database(inbox_database: str) -> Iterator[Database]:
    """One with the example's tables, and a phone of each kind in each region."""
    equipped(inbox_database, "notifications")
    with psycopg.connect(inbox_database, autocommit=True) as connection:
        connection.execute("delete from phones where token !~ '1$'")
        yield connection


def test_each_phone_has_one_push_whoever_is_killed(inbox_database: str, database: Database, tmp_path: Path) -> None:
    """The process dies while it reads, between pushes and the note of them, and over their receipts."""
    with outside_at_work() as url:
        environment = environment_of(inbox_database, url, tmp_path / "files")
        with Mortal.running(environment, CONSUMER, tmp_path / "log") as process:
            with held(inbox_database, "phones"):
                with held(inbox_database, "storms"):
                    until(partial(waits, database, "insert into storms"), "a report is kept, and its storm is not")
                    process.die()
                until(partial(waits, database, "update phones"), f"pushes are sent, and not noted: {process.said}")
                noted = Counter(outside.calls)
                process.die()
            until(partial(holds, database, AT_WORK), f"all are sent: {process.said}")
            with held(inbox_database, "phones"):
                until(partial(waits, database, "update phones"), f"a receipt says that a phone is gone: {process.said}")
                until(partial(holds, database, ASKED_ABOUT), "it is asked about still")
                process.die()
            # As if two minutes had gone by, for which nobody else asks about them.
            database.execute("update inbox_deliveries set available_at = now() where state = 'sent'")
            until(lambda: settled(database) == 0, f"all is over: {process.said}", 60)
    each = "select event_id || '/' || recipient, recipient, outcome from inbox_deliveries where recipient <> ''"
    deliveries = asked(inbox_database, each)
    ends = {(recipient.partition(".")[0], outcome) for _, recipient, outcome in deliveries}
    assert ends == set(ENDS.items())
    assert len(deliveries) == 2 * len(ENDS)
    # What was sent and not noted was sent again under the same name, by which the provider knows it.
    pushed = {name: times for name, times in outside.calls.items() if "/" in name}
    assert set(pushed) == {name for name, recipient, _ in deliveries if not recipient.startswith("muted")}
    assert any(pushed[name] > times for name, times in noted.items() if "/ok." in name)
    assert asked(inbox_database, "select count(*) from storms where notified_at is null") == [(0,)]
    assert asked(inbox_database, "select count(*) from outbox_events") == [(2,)]
    assert asked(inbox_database, "select count(*) from phones where not active") == [(4,)]
    # The history has whoever died while a job ran, and each time that a service was away.
    statuses = Counter(asked(inbox_database, "select status from relay_runs where job = 'ingest'"))
    assert statuses[("killed",)] >= 1
    assert set(statuses) <= {("killed",), ("done",), ("running",)}
    assert asked(inbox_database, "select count(*) > 0 from relay_runs where errors > 0") == [(True,)]
    assert asked(inbox_database, OVERLAPS) == [(0,)]


def test_no_row_is_lost_or_doubled_whoever_is_killed(inbox_database: str, database: Database, tmp_path: Path) -> None:
    """The process dies again and again while it moves old rows, and while it exports their months."""
    files = tmp_path / "files"
    database.execute(OLD)
    with outside_at_work() as url:
        environment = environment_of(inbox_database, url, files)
        with Mortal.running(environment, CONSUMER, tmp_path / "log") as process:
            for moved in (1, 1_000, 2_000):
                due(database, process, "clean_up")
                until(lambda moved=moved: archived(database) >= moved, f"{moved} are moved: {process.said}")
            finished(database, process, "clean_up")
            for exports in (1, 2):
                due(database, process, "archive")
                until(lambda exports=exports: begun(database) >= exports, f"{exports} are begun: {process.said}")
            finished(database, process, "archive")
            assert asked(inbox_database, "select distinct state from archive_exports") == [("verified",)]
            finished(database, process, "archive", "31 days")
            assert asked(inbox_database, "select distinct state from archive_exports") == [("dropped",)]
    written = [number for file in files.rglob("*.parquet") for number in numbers(file)]
    left = asked(inbox_database, "select number from sources where service = 'old'")
    shelved = asked(inbox_database, "select number from archive.sources where service = 'old'")
    assert not left
    assert sorted(map(int, written + [number for (number,) in shelved])) == list(range(1, 3_001))
    assert len(written) == 2_000
    assert asked(inbox_database, "select count(*) > 0 from relay_runs where status = 'killed'") == [(True,)]
    assert asked(inbox_database, OVERLAPS) == [(0,)]


def due(database: Database, process: Mortal, job: str, age: str = "0") -> None:
    """Have a job's time come; whoever runs it dies on the way, and the next one finds it."""
    database.execute("call later(%s, %s, '0')", (job, age))
    process.die()


def finished(database: Database, process: Mortal, job: str, age: str = "0") -> None:
    """The same, with nobody killed."""
    before = done(database, job)
    due(database, process, job, age)
    until(lambda: done(database, job) > before, f"{job} is done: {process.said}", 60)


def archived(database: Database) -> int:
    """How many rows of sources are in the archive, where there is one."""
    there = "select count(*) from pg_tables where schemaname = 'archive' and tablename ~ '^sources'"
    return number_of(database, "select count(*) from archive.sources") if number_of(database, there) else 0


def settled(database: Database) -> int | None:
    """How many jobs of the night are over, where nothing is on its way."""
    row = database.execute("select nights from settled").fetchone()
    return row and row[0]


def numbers(file: Path) -> list[str]:
    """Those of the old sources in a file."""
    rows = pyarrow.parquet.read_table(file).to_pylist()
    return [row["number"] for row in rows if row.get("service") == "old"]


def done(database: Database, job: str) -> int:
    """How many of its runs went to their end."""
    return number_of(database, "select count(*) from relay_runs where job = %s and status = 'done'", job)


def begun(database: Database) -> int:
    """How many months were set aside to be exported."""
    return number_of(database, "select count(*) from archive_exports")


def number_of(database: Database, query: str, *values: str) -> int:
    """What is counted."""
    row = database.execute(query.encode(), values or None).fetchone()
    assert row
    number: int = row[0]
    return number


def holds(database: Database, query: str) -> bool:
    """Whether it is so."""
    return bool(number_of(database, query))
