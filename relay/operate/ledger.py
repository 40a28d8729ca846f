"""What arrived and what the outbox says, side by side in a temporary file: memory does not grow with their number."""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple

from relay.errors import AuditError

EXAMPLES = 5

# SQLite deletes the file as soon as it is open. Nothing in it survives the process, so it is not synced or journalled.
_OPEN = """
    pragma journal_mode = off;
    pragma synchronous = off;
    pragma cache_size = -8000;
    pragma temp_store = file;
    create table arrivals (number integer primary key, message_id text not null, event_id text, sequence text,
                           ordering_key text not null, body_digest blob not null);
    create table rows (id integer primary key, event_id text not null, ordering_key text not null,
                       body_digest blob, here integer not null, state text not null);
    create table removed (event_id text primary key) without rowid;
"""

# Once all is recorded: an index is built faster than it is kept.
_SORT = """
    create index arrivals_by_event on arrivals (event_id, number);
    create unique index rows_by_event on rows (event_id);
    create table firsts (event_id text primary key, number integer not null) without rowid;
    insert into firsts select event_id, min(number) from arrivals where event_id is not null group by event_id;
"""

# Each names the event ids, or where there is none the message ids, that it finds; one line for each fault.
_FINDINGS: Mapping[str, str] = MappingProxyType(
    {
        "lost": """
            select event_id from rows
            where here and state = 'published' and event_id not in (select event_id from firsts) order by id""",
        "unknown": """
            select event_id from firsts
            where event_id not in (select event_id from rows) and event_id not in (select event_id from removed)
            order by number""",
        "undecodable": """
            select message_id from arrivals where event_id is null group by message_id order by min(number)""",
        "misrouted": """
            select event_id from firsts join rows using (event_id) where not here order by number""",
        "mismatched": """
            select event_id from arrivals as a join rows as r using (event_id)
            where a.sequence is not cast(r.id as text)
               or r.body_digest is not null and (a.ordering_key <> r.ordering_key or a.body_digest <> r.body_digest)
            group by event_id order by min(number)""",
        "inversions": """
            select event_id from (
                select event_id, number, id < max(id) over (partition by ordering_key order by number) as overtaken
                from firsts join rows using (event_id) where ordering_key <> '')
            where overtaken order by number""",
        "duplicates": """
            select again.event_id from firsts join arrivals as first using (number)
                join arrivals as again on again.event_id = first.event_id and again.message_id <> first.message_id
            group by again.event_id, again.message_id order by min(again.number)""",
        "early": """
            select event_id from firsts join rows using (event_id)
            where state in ('pending', 'failed', 'discarded') order by number""",
        "late": """
            select event_id from rows
            where here and state = 'late' and event_id not in (select event_id from firsts) order by id""",
    }
)

_TOTALS: Mapping[str, str] = MappingProxyType(
    {
        "messages": "select count(distinct message_id) from arrivals",
        "redelivered": "select count(*) - count(distinct message_id) from arrivals",
        "seen": "select count(*) from firsts",
        "expected": "select count(*) from rows where here and state = 'published'",
        "pending": "select count(*) from rows where here and state = 'pending'",
        "failed": "select count(*) from rows where here and state = 'failed'",
        "discarded": "select count(*) from rows where here and state = 'discarded'",
        "forgotten": """
            select count(*) from firsts
            where event_id in (select event_id from removed) and event_id not in (select event_id from rows)""",
    }
)


class Arrival(NamedTuple):
    """One delivery; `event_id` is None where the message names none."""

    message_id: str
    event_id: str | None
    sequence: str | None
    ordering_key: str
    body_digest: bytes


class Row(NamedTuple):
    """One row of the outbox, as `audit_rows.sql` reads it."""

    id: int
    event_id: str
    ordering_key: str
    body_digest: bytes | None  # None: the row was redacted, and tells neither its key nor its body
    here: bool
    state: str


@dataclass(frozen=True, slots=True)
class Finding:
    """How often something was found, and the first of the ids."""

    count: int
    examples: tuple[str, ...]


class Ledger:
    """Takes arrivals in their order, then rows, then compares them."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self._database.executescript(_OPEN)

    @staticmethod
    @contextmanager
    def temporary() -> Iterator["Ledger"]:
        """A ledger in a file that has no name and is gone after the block, or with the process."""
        try:
            with closing(sqlite3.connect("")) as database:
                yield Ledger(database)
        except sqlite3.OperationalError as error:
            raise AuditError(
                f"the temporary file of what arrived: {error}; what was read is acknowledged and gone. "
                "Name a folder with more room in SQLITE_TMPDIR, and audit another subscription"
            ) from error

    def record_arrivals(self, arrivals: Iterable[Arrival]) -> None:
        """Write the next arrivals down; when this returns, they are in the file."""
        with self._database:
            self._database.executemany(
                "insert into arrivals (message_id, event_id, sequence, ordering_key, body_digest)"
                " values (?, ?, ?, ?, ?)",
                arrivals,
            )

    def record_rows(self, rows: Iterable[Row]) -> None:
        """Write rows down."""
        with self._database:
            self._database.executemany("insert into rows values (?, ?, ?, ?, ?, ?)", rows)

    def record_removed(self, event_ids: Iterable[tuple[str]]) -> None:
        """Write events down whose rows were forgotten."""
        with self._database:
            self._database.executemany("insert or ignore into removed values (?)", event_ids)

    def compare(self) -> tuple[dict[str, int], dict[str, Finding]]:
        """Count everything, once all is recorded: totals by name, and findings by name."""
        self._database.executescript(_SORT)
        totals = {name: int(self._database.execute(query).fetchone()[0]) for name, query in _TOTALS.items()}
        return totals, {name: self._find(query) for name, query in _FINDINGS.items()}

    def _find(self, query: str) -> Finding:
        found = self._database.execute(query)
        examples = tuple(row[0] for row in islice(found, EXAMPLES))
        return Finding(len(examples) + sum(1 for _ in found), examples)
