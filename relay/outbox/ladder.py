"""The numbered steps of the schema, and the ways between its versions. Imports no driver: frameworks bring one."""

from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib.resources import files

from relay.errors import ConfigurationError

# The advisory lock under which a schema is changed: 'outb', 'migr' in ASCII.
MIGRATION_LOCK = (0x6F757462, 0x6D696772)
# How long the steps may wait for the locks of live traffic: whoever comes after them waits behind them.
LOCK_TIMEOUT = "10s"
# How long a start waits for another one to finish.
MIGRATION_TIMEOUT = "10min"

VERSION_TABLE = """\
create table if not exists outbox_migrations (
    version    integer primary key,
    name       text not null,
    applied_at timestamptz not null default clock_timestamp()
);"""
# What the steps make, and what no other tool may take for its own.
TABLES = frozenset({"outbox_events", "outbox_actions", "outbox_migrations"})


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
    """One half of one migration."""

    migration: Migration
    direction: Direction

    @property
    def statements(self) -> str:
        """The SQL that makes the change."""
        return self.migration.up if self.direction is Direction.UP else self.migration.down

    @property
    def bookkeeping(self) -> str:
        """The SQL that records it; both values come from the name of our own file."""
        if self.direction is Direction.DOWN:
            if self.migration is migrations()[0]:
                return "drop table outbox_migrations;"
            return f"delete from outbox_migrations where version = {self.migration.version};"  # noqa: S608 -- an int
        values = f"({self.migration.version}, '{self.migration.name}')"
        return f"insert into outbox_migrations (version, name) values {values};"  # noqa: S608 -- and its name

    def __str__(self) -> str:
        return f"{self.direction.value:<4} {self.migration.version:04d} {self.migration.name}"


@cache
def migrations() -> tuple[Migration, ...]:
    """Every migration that this code knows, in order."""
    folder = files("relay.outbox") / "migrations"
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


def newest() -> int:
    """The version that this code was written for."""
    return migrations()[-1].version


def steps(current: int, target: int) -> list[Step]:
    """The way from one version to another, in either direction."""
    for wanted in (current, target):
        # Users write it in their revisions, where True would be 1.
        if type(wanted) is not int or not 0 <= wanted <= newest():
            raise ConfigurationError(f"there is no schema version {wanted!r}; this code knows 0 to {newest()}")
    if target >= current:
        return [Step(m, Direction.UP) for m in migrations() if current < m.version <= target]
    return [Step(m, Direction.DOWN) for m in reversed(migrations()) if target < m.version <= current]
