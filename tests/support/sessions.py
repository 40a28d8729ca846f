"""What the sessions of a database leave behind, and when."""

from typing import Any

import psycopg

from tests.support.waiting import until

_OTHERS = """
select count(*) from pg_stat_activity
 where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'
"""
_FORGET_STATEMENTS = "select pg_stat_statements_reset(0, oid, 0) from pg_database where datname = current_database()"


def until_alone(connection: psycopg.Connection[Any]) -> None:
    """Return when no other session of the database is left: by then each has reported what it counted."""
    until(lambda: connection.execute(_OTHERS).fetchone() == (0,), "the other sessions of the database have ended")


def count_statements(connection: psycopg.Connection[Any]) -> None:
    """Have pg_stat_statements in this database, and in it nothing of what tests before this one asked."""
    connection.execute("create extension pg_stat_statements")
    connection.execute(_FORGET_STATEMENTS)
