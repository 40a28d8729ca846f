"""What Postgres refuses while rows are moved, in words that say what to do."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psycopg
from psycopg import errors as pg

from relay.errors import ConfigurationError, MoveError
from relay.upkeep.table import Table
from relay.upkeep.table_name import ARCHIVE

# Somebody else was in the way for a moment, or it took too long: the page was left as it was.
PASSING: Final = (pg.LockNotAvailable, pg.DeadlockDetected, pg.SerializationFailure, pg.QueryCanceled)


def lacks_month(error: pg.CheckViolation) -> bool:
    """Whether a row is of a month that there is no partition for."""
    return error.diag.schema_name == ARCHIVE and error.diag.constraint_name is None


@contextmanager
def in_words(table: Table) -> Iterator[None]:
    """Raises ConfigurationError and MoveError in place of what they are about."""
    try:
        yield
    except (pg.ForeignKeyViolation, pg.RestrictViolation) as error:
        diag = error.diag
        raise MoveError(
            f"a row of {table.place} is still referred to by {diag.schema_name}.{diag.table_name} (constraint "
            f"{diag.constraint_name}); name that table in children=, or leave such rows out by where=. Its page was "
            "left as it is"
        ) from error
    except pg.UniqueViolation as error:
        if error.diag.schema_name != ARCHIVE:
            raise
        raise MoveError(
            f"{ARCHIVE}.{error.diag.table_name} has a row already of the key that one of {table.place} has; remove the "
            "one that is wrong. The page was left as it is"
        ) from error
    except pg.CheckViolation as error:
        if not lacks_month(error):
            raise
        raise MoveError(
            f"a row that goes with one of {table.place} has no month in {ARCHIVE}.{error.diag.table_name}: it is from "
            "before the year 1 or after 9998, or partitions were taken away again and again. The page was left as it is"
        ) from error
    except (pg.UndefinedColumn, pg.UndefinedTable) as error:
        # A function or a trigger tells of statements of its own.
        if error.diag.context is not None:
            raise
        raise MoveError(
            f"{table.place}, or a table that goes with it, was altered while rows were moved: "
            f"{error.diag.message_primary}. The page was left as it is; the next run knows what there is by then"
        ) from error
    except (pg.ReadOnlySqlTransaction, *PASSING) as error:
        raise MoveError(f"no further rows of {table.place} were moved, for {_hindrance(error)}") from error
    except pg.InsufficientPrivilege as error:
        raise ConfigurationError(
            f"rows of {table.place} may not be moved: {error.diag.message_primary}; docs/retention.md says which "
            "rights that takes"
        ) from error


def _hindrance(error: psycopg.Error) -> str:
    if isinstance(error, pg.ReadOnlySqlTransaction):
        return (
            f"the server takes no changes: {error.diag.message_primary}. It is a standby, or "
            "default_transaction_read_only is on; connect to the primary, or turn that off"
        )
    return (
        f"somebody was in the way, or it took too long: {error.diag.message_primary}. The next run goes on there; "
        "pg_locks names who holds what"
    )
