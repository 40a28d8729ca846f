"""The outbox in a project's own Alembic revisions: its steps, and an autogenerate that leaves its tables alone.

import relay.alembic as outbox

def upgrade() -> None:
    outbox.upgrade(op, to=5)
"""

from collections.abc import Callable
from typing import Any, Protocol

from alembic.migration import MigrationContext
from alembic.util import CommandError
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from relay.errors import ConfigurationError
from relay.outbox import script
from relay.outbox.ladder import TABLES

__all__ = ["downgrade", "include_name", "include_object", "leave_alone", "upgrade"]

# What Alembic asks: about a thing, its name, its type, whether it was reflected, and its counterpart.
IncludeObject = Callable[[Any, str | None, Any, bool, Any], bool]


class Operations(Protocol):
    """What is used of Alembic's `op`: the module, or an object of `Operations`."""

    def get_context(self) -> MigrationContext:
        """The migration that is under way."""

    def get_bind(self) -> Connection:
        """Its connection."""


def upgrade(op: Operations, *, to: int, schema: str = "public") -> None:
    """Bring the outbox to a version, from any before it; nothing is done where the database has it, or a later one.

    Goes in the revision's transaction, and into the script of `alembic upgrade --sql`. Raises CommandError.
    """
    _run(op, script.up, schema, to)


def downgrade(op: Operations, *, to: int, schema: str = "public") -> None:
    """Take the outbox back to a version, from any after it; 0 takes it away. Nothing is done where it is there already.

    Refused while events wait, or records of what operators did. Raises CommandError.
    """
    _run(op, script.down, schema, to)


def include_object(thing: Any, name: str | None, type_: str, reflected: bool, compare_to: Any) -> bool:  # noqa: ARG001, FBT001 -- Alembic's own signature
    """Whether autogenerate may look at it: not at the outbox's tables, and at nothing that belongs to one."""
    table = name if type_ == "table" else getattr(getattr(thing, "table", None), "name", None)
    return table not in TABLES


def include_name(name: str | None, type_: str, parent_names: Any) -> bool:
    """Whether autogenerate may read it from the database: not the outbox's tables, nor what belongs to one."""
    table = name if type_ == "table" else parent_names.get("table_name")
    return table not in TABLES


def leave_alone(mine: IncludeObject) -> IncludeObject:
    """An `include_object` that leaves the outbox alone, and asks the project's own about all else."""

    def both(thing: Any, name: str | None, type_: Any, reflected: bool, compare_to: Any) -> bool:  # noqa: FBT001 -- the same
        return include_object(thing, name, type_, reflected, compare_to) and mine(
            thing, name, type_, reflected, compare_to
        )

    return both


def _run(op: Operations, way: Callable[[str, int], str], schema: str, target: int) -> None:
    context = op.get_context()
    if context.dialect.name != "postgresql":
        raise CommandError(
            f"the outbox lives in Postgres, and this migration runs on {context.dialect.name}; "
            "leave its revision out there: if op.get_context().dialect.name == 'postgresql'"
        )
    try:
        statement = way(schema, target)
    except ConfigurationError as error:
        raise CommandError(
            f"{error}. Is the release of outbox-relay installed that this revision was written with?"
        ) from error
    if context.as_sql:
        context.impl.static_output(statement)
        return
    try:
        # Without parameters, the driver reads no sign of its own in it; `text` would read `:MI` as a parameter.
        op.get_bind().exec_driver_sql(statement, execution_options={"no_parameters": True})
    except DBAPIError as error:
        said = script.complaint(error.orig) or script.complaint(error.orig and error.orig.__cause__)
        if said is None:
            raise
        # Not from the error itself, which repeats the whole statement.
        raise CommandError(said) from error.orig
