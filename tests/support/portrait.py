"""What a schema holds, to be compared with what another way made."""

from typing import Any

import psycopg
from psycopg import sql

# Everything that a migration can make, by its definition and not by its oid.
_PORTRAIT = """
    select 'relation', relname::text, concat_ws(' ', relkind, reloptions)
      from pg_class where relnamespace = %(schema)s::regnamespace
    union all
    -- By its place among those that are there: a column that was dropped and made again has a number of its own.
    select 'column', attrelid::regclass::text, concat_ws(' ', row_number() over (partition by attrelid order by attnum),
           attname, format_type(atttypid, atttypmod), attnotnull, attidentity, pg_get_expr(adbin, adrelid))
      from pg_attribute join pg_class on pg_class.oid = attrelid
      left join pg_attrdef on adrelid = attrelid and adnum = attnum
     where relnamespace = %(schema)s::regnamespace and attnum > 0 and not attisdropped
    union all
    select 'index', indexrelid::regclass::text, pg_get_indexdef(indexrelid)
      from pg_index join pg_class on pg_class.oid = indexrelid where relnamespace = %(schema)s::regnamespace
    union all
    select 'constraint', conname::text, pg_get_constraintdef(oid)
      from pg_constraint where connamespace = %(schema)s::regnamespace
    union all
    select 'function', oid::regprocedure::text, pg_get_functiondef(oid)
      from pg_proc where pronamespace = %(schema)s::regnamespace
    union all
    select 'trigger', tgname::text, pg_get_triggerdef(pg_trigger.oid)
      from pg_trigger join pg_class on pg_class.oid = tgrelid
     where relnamespace = %(schema)s::regnamespace and not tgisinternal
    union all
    select 'type', typname::text, '' from pg_type where typnamespace = %(schema)s::regnamespace
    union all
    select 'comment', pg_describe_object(classoid, objoid, objsubid), description
      from pg_description where objoid >= 16384
    order by 1, 2, 3
"""


def portrait(
    connection: psycopg.Connection[Any], name: str = "public", but: str | None = None
) -> list[tuple[Any, ...]]:
    """What the schema holds; `but` leaves out what is named after a tool's own table."""
    found = connection.execute(_PORTRAIT, {"schema": name}).fetchall()
    return [entry for entry in found if but is None or but not in f"{entry}"]


def recorded(connection: psycopg.Connection[Any], table: str = "outbox_migrations") -> list[tuple[Any, ...]]:
    """The steps that were taken, as the database has them."""
    return connection.execute(
        sql.SQL("select version, name from {} order by version").format(sql.Identifier(table))
    ).fetchall()
