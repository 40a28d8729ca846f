"""The operator's expressions, each parsed by the server on its own before it is put into a statement."""

from collections.abc import Mapping as Pairs
from typing import Any

import psycopg
from psycopg import errors as pg
from psycopg import pq, sql
from psycopg.errors import error_from_result
from psycopg.postgres import types

from relay.adopt.mapping import Mapping, Update
from relay.adopt.table import OldTable
from relay.errors import ConfigurationError

_JSON = ("jsonb", "json")
_TIME = ("timestamptz", "text")
# Of the fields that are not just texts: the types they may have, and what to write where they have another.
_TYPES: Pairs[str, tuple[tuple[str, ...], str]] = {
    "data": (_JSON, "data=payload::jsonb"),
    "actor": (_JSON, "actor=jsonb_build_object('type', 'user', 'id', user_id::text)"),
    "attributes": (_JSON, "attributes=headers::jsonb"),
    "version": (("int4", "int2", "int8", "numeric"), "version=schema_version::int"),
    "event_id": (("uuid", "text", "varchar", "bpchar"), "event_id=id::uuid"),
    "occurred_at": (_TIME, "occurred_at=created_at at time zone 'UTC'"),
    "available_at": (_TIME, "available_at=send_at at time zone 'UTC'"),
}
# No comment at its end can hide what follows, and it is one operand wherever it stands.
_ALONE = sql.SQL("((\n{}\n))")


def verify(connection: psycopg.Connection[Any], table: OldTable, mapping: Mapping) -> None:
    """Have the server read every expression; none is run. Raises ConfigurationError for the first that is none.

    The search_path of the transaction is the one that the trigger will have.
    """
    rows = sql.SQL("{} as {}").format(table.identifier, sql.Identifier(table.name))
    if _type_of(connection, "--pending", mapping.pending, rows) != types["bool"].oid:
        raise ConfigurationError('--pending is not a condition; write it like --pending "sent_at is null"')
    if isinstance(mapping.mark, Update):
        for name, expression in mapping.mark.assignments.items():
            option = f"--mark {name}"
            _type_of(connection, option, expression, rows)
            update = sql.SQL("update {} set {} = {} where false").format(rows, sql.Identifier(name), alone(expression))
            _prepared(connection, option, update)
    whole = sql.SQL("(select * from {}) as {}").format(table.identifier, sql.Identifier(table.name))
    for field, expression in mapping.fields.items():
        oid = _type_of(connection, f"--map {field}", expression, whole)
        wanted, example = _TYPES.get(field, ((), ""))
        if wanted and oid not in {types[name].oid for name in wanted}:
            known = types.get(oid)
            raise ConfigurationError(
                f"--map {field} is of type {known.name if known else oid}, not {wanted[0]}; "
                f'convert it, like --map "{example}"'
            )


def alone(expression: str) -> sql.Composed:
    """The expression as one operand, for a statement without parameters."""
    return _ALONE.format(sql.SQL(expression))


def beside_parameters(expression: str) -> sql.Composed:
    """The same for a statement with parameters, whose percent signs mean something."""
    return alone(expression.replace("%", "%%"))


def _type_of(connection: psycopg.Connection[Any], option: str, expression: str, rows: sql.Composed) -> int:
    """The type of what is one expression over one row, and nothing else.

    What closes our brackets and opens them again is refused by the first statement where it makes two columns, and by
    the second where it goes on as a query. The second also knows aggregates and sets, which are not of one row.
    """
    column = _prepared(connection, option, sql.SQL("select {} from {}").format(alone(expression), rows))
    if column.nfields != 1 or column.nparams or column.ftype(0) == types["record"].oid:
        raise ConfigurationError(f"{option}: {expression[:128]!r} is not one expression over the columns of a row")
    _prepared(connection, option, sql.SQL("select 1 from {} where array[{}] is null").format(rows, alone(expression)))
    return int(column.ftype(0))


def _prepared(connection: psycopg.Connection[Any], option: str, query: sql.Composed) -> pq.abc.PGresult:
    """What the server says of a statement that it has parsed, as one, and not run."""
    pgconn = connection.pgconn
    result = pgconn.prepare(b"", query.as_bytes(connection))
    if result.status == pq.ExecStatus.COMMAND_OK:
        result = pgconn.describe_prepared(b"")
    if result.status != pq.ExecStatus.COMMAND_OK:
        error = error_from_result(result)
        if isinstance(error, pg.InsufficientPrivilege) or not (error.sqlstate or "").startswith(("42", "0A", "22")):
            raise error
        advice = "names are looked up in the outbox's schema, write others with theirs"
        if isinstance(error, pg.UndefinedColumn | pg.SyntaxError):
            advice = "a column is written by its name, a text in single quotes, as in \"aggregate_type='order'\""
        raise ConfigurationError(f"{option}: {error.diag.message_primary}; {advice}") from error
    return result
