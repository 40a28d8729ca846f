"""What makes an event of every row that is inserted into a table that is taken over, and its removal."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import sql

from relay.adopt.mapping import Delete, Refused, Update
from relay.adopt.queries import raw, template
from relay.adopt.session import Session
from relay.adopt.table import TRIGGER, Place
from relay.outbox.statements import statement
from relay.postgres.statements import search_path

_LONGEST_NAME = 63
_EMIT_ONE, _MARK_ONE = "_row", "_mark"


def function_name(schema: str, table: str) -> str:
    """What the trigger of this table runs; names that would be cut are told apart by a hash."""
    name = f"{TRIGGER}_{schema}_{table}"
    most = _LONGEST_NAME - max(len(_EMIT_ONE), len(_MARK_ONE))
    if len(name.encode()) <= most:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:12]
    return f"{name.encode()[: most - len(digest) - 1].decode(errors='ignore')}_{digest}"


def make_functions(session: Session, refused: Refused) -> None:
    """Create the functions, or put these in their place; nothing runs them yet where there is no trigger.

    Those of one row are parsed now, and what they need is remembered by the database: outbox_emit, and the columns of
    the mapping, can then not be dropped by mistake. That of the trigger runs with the rights of the outbox's owner.
    """
    table, connection = session.table, session.connection
    name = function_name(table.schema, table.name)
    _drop(connection, session.outbox_schema, [f"{name}{_EMIT_ONE}", f"{name}{_MARK_ONE}"])
    run, emit_one, mark_one = (
        sql.Identifier(session.outbox_schema, f"{name}{suffix}") for suffix in ("", _EMIT_ONE, _MARK_ONE)
    )
    arguments = sql.SQL(", ").join(raw(each.type) for each in table.ids)
    path = raw(search_path(session.outbox_schema))
    for text in (
        sql.SQL(
            "create function {}({}) returns table (pending boolean, sequence bigint) "
            "language sql volatile begin atomic {}; end"
        ).format(emit_one, arguments, session.queries.emit_one()),
        sql.SQL("create function {}({}) returns boolean language sql volatile begin atomic {}; end").format(
            mark_one, arguments, session.queries.mark_one()
        ),
        sql.SQL(
            "create or replace function {}() returns trigger language plpgsql volatile security definer "
            "set search_path to {} set timezone to 'UTC' set datestyle to 'ISO' set row_security to off as {}"
        ).format(run, path, _body(session, emit_one, mark_one, refused)),
        sql.SQL("revoke execute on function {run}(), {emit}({ids}), {mark}({ids}) from public").format(
            run=run, emit=emit_one, mark=mark_one, ids=arguments
        ),
        sql.SQL("comment on function {}() is {}").format(run, sql.Literal(_comment(session, refused))),
        *(
            sql.SQL("comment on function {}({}) is {}").format(
                part, arguments, sql.Literal(f"{does} one row of {table}, for {name}().")
            )
            for part, does in ((emit_one, "Emits"), (mark_one, "Marks"))
        ),
    ):
        connection.execute(text)


def make_trigger(session: Session) -> None:
    """Have it run for each row, once the row is in the table as it will be; partitions have it too."""
    table = session.table
    name = function_name(table.schema, table.name)
    before = _function_of(session.connection, table.oid)
    session.connection.execute(
        sql.SQL("create or replace trigger {} after insert on {} for each row execute function {}()").format(
            sql.Identifier(TRIGGER),
            table.identifier,
            sql.Identifier(session.outbox_schema, name),
        )
    )
    if before is not None and before != (session.outbox_schema, name):
        _drop_all(session.connection, *before)


def remove(connection: psycopg.Connection[Any], place: Place) -> bool:
    """Drop trigger and functions, in the transaction that is open; it waits for who inserts, and they for it.

    Answers whether there were any: what was known of the table before the wait may be out of date.
    """
    drop = sql.SQL("drop trigger if exists {} on {}").format(
        sql.Identifier(TRIGGER), sql.Identifier(place.schema, place.name)
    )
    connection.execute(
        sql.SQL("lock table {} in access exclusive mode").format(sql.Identifier(place.schema, place.name))
    )
    function = _function_of(connection, place.oid)
    connection.execute(drop)
    if function is not None:
        _drop_all(connection, *function)
    return function is not None


def _function_of(connection: psycopg.Connection[Any], table: int) -> tuple[str, str] | None:
    """Schema and name of what the trigger of the table runs: it was named when the table may have had another name."""
    found = connection.execute(statement("adopt_function"), {"table": table, "trigger": TRIGGER}).fetchone()
    return None if found is None else (found[0], found[1])


def _drop_all(connection: psycopg.Connection[Any], schema: str, name: str) -> None:
    _drop(connection, schema, [name, f"{name}{_EMIT_ONE}", f"{name}{_MARK_ONE}"])


def _drop(connection: psycopg.Connection[Any], outbox_schema: str, names: Sequence[str]) -> None:
    """Whatever their arguments are: another release of the mapping may have had another id."""
    found = connection.execute(
        "select oid::regprocedure::text from pg_proc "
        "where pronamespace = %s::regnamespace and proname = any (%s) order by oid",
        (sql.Identifier(outbox_schema).as_string(connection), list(names)),
    ).fetchall()
    for (signature,) in found:
        connection.execute(sql.SQL("drop function {}").format(raw(signature)))


def _body(session: Session, emit_one: sql.Identifier, mark_one: sql.Identifier, refused: Refused) -> sql.Literal:
    table = session.table
    handler: sql.Composable = sql.SQL("")
    if refused is Refused.KEEP:
        handler = template("keep").format(
            kept=sql.Literal(f"outbox_adopt: a row of {table} is no event and stays pending")
        )
    body = template("trigger").format(
        emit_one=emit_one,
        ids=session.queries.new_ids(),
        mark_one=mark_one,
        vanished=sql.Literal(f"outbox_adopt: a new row of {table} is not to be seen; does another trigger delete it?"),
        still=sql.Literal(f"outbox_adopt: a new row of {table} waits although it is marked; does a trigger undo it?"),
        handler=handler,
    )
    return sql.Literal(body.as_string(session.connection))


def _comment(session: Session, refused: Refused) -> str:
    """Where somebody finds the trigger who does not know of it."""
    mapping, table = session.mapping, session.table
    match mapping.mark:
        case Delete():
            mark: object = "delete"
        case Update(assignments):
            mark = dict(assignments)
    known = {
        "id": list(mapping.ids),
        "pending": mapping.pending,
        "mark": mark,
        "map": dict(mapping.fields),
        "refused": refused.value,
    }
    return (
        f"Makes an event of each row inserted into {table}. To remove it: "
        f"python -m relay adopt --table {table} --release. {json.dumps(known, ensure_ascii=False)}"
    )
