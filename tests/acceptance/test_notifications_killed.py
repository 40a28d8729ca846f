"""The example of notifications with its process killed in each of its cycles: what is promised is counted."""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet
import pytest

from examples.notifications import outside
from examples.notifications.__main__ import CONSUMER
from examples.programs import equipped
from tests.support.looking import asked
from tests.support.mortal import Mortal
from tests.support.notifications import environment_of, held, outside_at_work, waits
from tests.support.waiting import until

pytestmark = pytest.mark.slow("kills the processes of an example for seconds")

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
ALL_SENT = "select count(*) = 0 from inbox_deliveries where state in ('pending', 'processing')"
ASKED_ABOUT = (
    "select count(*) > 0 from inbox_deliveries where state = 'sent' and available_at > now() + interval '1 minute'"
)
MOVING = "select count(*) > 0 from relay_runs where job = 'clean_up' and status = 'running'"
VERIFIED = "select count(*) = 2 and bool_and(state = 'verified') from archive_exports"
DROPPED = "select count(*) = 2 and bool_and(state = 'dropped') from archive_exports"
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
        database.execute("call later('ingest', '0', '0')")
        with Mortal.running(environment, CONSUMER, tmp_path / "log") as process:
            with held(inbox_database, "phones"):
                with held(inbox_database, "storms"):
                    hoped(process, partial(waits, database, "insert into storms"), "a report is kept, and no storm")
                    process.die()
                hoped(process, partial(waits, database, "update phones"), "pushes are sent, and not noted")
                noted = Counter(outside.calls)
                process.die()
            hoped(process, partial(holds, database, ALL_SENT), "all are sent")
            with held(inbox_database, "phones"):
                hoped(process, partial(waits, database, "update phones"), "a receipt says that a phone is gone")
                hoped(process, partial(holds, database, ASKED_ABOUT), "it is asked about still")
                process.die()
            # As if two minutes had gone by, for which nobody else asks about them.
            database.execute("update inbox_deliveries set available_at = now() where state = 'sent'")
            hoped(process, partial(is_settled, database), "all is over")
    each = "select event_id || '/' || recipient, recipient, outcome from inbox_deliveries where recipient <> ''"
    deliveries = asked(inbox_database, each)
    ends = {(recipient.partition(".")[0], outcome) for _, recipient, outcome in deliveries}
    # Where a lease was lost between them, a phone is deactivated, and its delivery is handled once more.
    assert ends - {("gone", "skipped"), ("gone", "invalid")} == set(ENDS.items()) - {("gone", "invalid")}
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
    files.mkdir()
    database.execute(OLD)
    with outside_at_work() as url:
        environment = environment_of(inbox_database, url, files)
        with Mortal.running(environment, CONSUMER, tmp_path / "log") as process:
            database.execute("call later('clean_up', '0', '0')")
            with held(inbox_database, "sources"):
                process.die()
                hoped(process, partial(holds, database, MOVING), "rows are about to be moved")
                process.die()
            for moved in (1, 1_500, 3_000):
                nights(database, process, "clean_up", partial(archived, database, moved))
            nights(database, process, "archive", partial(holds, database, "select count(*) > 0 from archive_exports"))
            nights(database, process, "archive", partial(holds, database, VERIFIED))
            database.execute("call later('archive', '31 days', '0')")
            nights(database, process, "archive", partial(holds, database, DROPPED))
    written = [number for file in files.rglob("*.parquet") for number in numbers(file)]
    left = asked(inbox_database, "select number from sources where service = 'old'")
    shelved = asked(inbox_database, "select number from archive.sources where service = 'old'")
    assert not left
    assert sorted(map(int, written + [number for (number,) in shelved])) == list(range(1, 3_001))
    assert len(written) == 2_000
    killed = "select count(*) > 0 from relay_runs where job = 'clean_up' and status = 'killed'"
    assert asked(inbox_database, killed) == [(True,)]
    assert asked(inbox_database, OVERLAPS) == [(0,)]


def nights(database: Database, process: Mortal, job: str, is_so: Callable[[], bool]) -> None:
    """Have a job's time come night after night until it is so; whoever was at work the night before is killed."""

    def is_over(before: int) -> bool:
        return is_so() or ended(database, job) > before

    for _ in range(5):
        before = ended(database, job)
        database.execute("call later(%s, '0', '0')", [job])
        process.die()
        hoped(process, partial(is_over, before), f"a night of {job}")
        if is_so():
            return
    raise AssertionError(f"five nights of {job} were in vain: {process.said}")


def hoped(process: Mortal, condition: Callable[[], bool], what: str) -> None:
    """Wait until it is so, or say what the process has said meanwhile."""
    try:
        until(condition, what)
    except AssertionError as error:
        raise AssertionError(f"{error}: {process.said}") from error


def archived(database: Database, rows: int) -> bool:
    """Whether so many rows of sources are in the archive, or more."""
    there = "select count(*) from pg_tables where schemaname = 'archive' and tablename ~ '^sources'"
    return holds(database, there) and number_of(database, "select count(*) from archive.sources") >= rows


def is_settled(database: Database) -> bool:
    """Whether the job that is due is done, and nothing on its way."""
    return database.execute("select from settled").fetchone() is not None


def numbers(file: Path) -> list[str]:
    """Those of the old sources in a file."""
    rows = pyarrow.parquet.read_table(file).to_pylist()
    return [row["number"] for row in rows if row.get("service") == "old"]


def ended(database: Database, job: str) -> int:
    """How many of its runs came to an end of their own."""
    return number_of(database, "select count(*) from relay_runs where job = %s and status = 'done'", job)


def number_of(database: Database, query: str, *values: str) -> int:
    """What is counted."""
    row = database.execute(query.encode(), values or None).fetchone()
    assert row
    number: int = row[0]
    return number


def holds(database: Database, query: str) -> bool:
    """Whether it is so."""
    return bool(number_of(database, query))
