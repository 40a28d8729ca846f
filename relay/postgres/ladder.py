"""The numbered steps of a schema, and the ways between its versions. Imports no driver: frameworks bring one."""

from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib.resources import files

from relay.errors import ConfigurationError

# How long the steps may wait for the locks of live traffic: whoever comes after them waits behind them.
LOCK_TIMEOUT = "10s"
# How long a start waits for another one to finish.
MIGRATION_TIMEOUT = "10min"
# What both the outbox's steps and the inbox's make, once where they share a schema.
UPKEEP_TABLES = frozenset({"relay_schedule", "relay_runs", "archive_exports"})


class Direction(Enum):
    """Which half of a migration a step runs."""

    UP = "up"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered, reversible change of the schema."""

    version: int
    name: str
    up: str
    down: str


@dataclass(frozen=True, slots=True)
class Step:
    """One half of one migration; `bookkeeping` is the SQL that records it."""

    migration: Migration
    direction: Direction
    bookkeeping: str

    @property
    def statements(self) -> str:
        """The SQL that makes the change."""
        return self.migration.up if self.direction is Direction.UP else self.migration.down

    def __str__(self) -> str:
        return f"{self.direction.value:<4} {self.migration.version:04d} {self.migration.name}"


@dataclass(frozen=True, slots=True)
class Ladder:
    """The steps of one package's tables, and the words in which errors speak of them. Values are ours, never a user's.

    The record of its steps is the table `<name>_migrations`.
    """

    name: str
    """What the steps make, as in "has no outbox"."""
    package: str
    """Who has the folder `migrations/`, of files like 0001_outbox_events.up.sql and 0001_outbox_events.down.sql."""
    tables: frozenset[str]
    """What the steps make, and what no other tool may take for its own; the record among them."""
    lock: tuple[int, int]
    """The advisory lock under which a schema is changed."""
    command: str
    """Takes the steps: python -m relay migrate."""
    setting: str
    """Names the schema: RELAY_SCHEMA."""
    rights: str
    """What to do for a role that may not read it."""
    in_use: str
    """What else may stand on a table, with the remedy, where a step cannot take it away."""
    stored: str
    """What comes in while a step back waits: events that were stored."""

    @property
    def record(self) -> str:
        """The table that knows which steps were taken."""
        return f"{self.name}_migrations"

    @property
    def record_made(self) -> str:
        """The SQL that makes it."""
        return f"""\
create table if not exists {self.record} (
    version    integer primary key,
    name       text not null,
    applied_at timestamptz not null default clock_timestamp()
);"""

    def migrations(self) -> tuple[Migration, ...]:
        """Every migration that this code knows, in order."""
        return _migrations(self.package)

    def newest(self) -> int:
        """The version that this code was written for."""
        return self.migrations()[-1].version

    def steps(self, current: int, target: int) -> list[Step]:
        """The way from one version to another, in either direction."""
        for wanted in (current, target):
            # Users write it in their revisions, where True would be 1.
            if type(wanted) is not int or not 0 <= wanted <= self.newest():
                raise ConfigurationError(f"there is no schema version {wanted!r}; this code knows 0 to {self.newest()}")
        if target >= current:
            return [self._up(each) for each in self.migrations() if current < each.version <= target]
        return [self._down(each) for each in reversed(self.migrations()) if target < each.version <= current]

    def _up(self, migration: Migration) -> Step:
        values = f"({migration.version}, '{migration.name}')"
        recorded = f"insert into {self.record} (version, name) values {values};"  # noqa: S608 -- of our own file's name
        return Step(migration, Direction.UP, recorded)

    def _down(self, migration: Migration) -> Step:
        if migration is self.migrations()[0]:
            return Step(migration, Direction.DOWN, f"drop table {self.record};")
        recorded = f"delete from {self.record} where version = {migration.version};"  # noqa: S608 -- an int
        return Step(migration, Direction.DOWN, recorded)


@cache
def _migrations(package: str) -> tuple[Migration, ...]:
    folder = files(package) / "migrations"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".up.sql"))
    found = []
    for name in names:
        stem = name.removesuffix(".up.sql")
        version, _, title = stem.partition("_")
        found.append(
            Migration(
                version=int(version),
                name=title,
                up=(folder / name).read_text(encoding="utf-8"),
                down=(folder / f"{stem}.down.sql").read_text(encoding="utf-8"),
            )
        )
    return tuple(found)
