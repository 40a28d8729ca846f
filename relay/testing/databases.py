"""Databases for tests: each its own, made from a template in some milliseconds, dropped afterwards."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, LiteralString
from urllib.parse import quote, urlencode
from uuid import uuid4

import psycopg
from psycopg import errors as pg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from relay.errors import ConfigurationError
from relay.outbox import schema

_END_SECONDS, _LOOK_SECONDS = 5.0, 0.001
_OTHERS_END = (
    "select count(pg_terminate_backend(pid)) from pg_stat_activity "
    "where datname = %s and pid <> pg_backend_pid() and backend_type = 'client backend'"
)


@contextmanager
def fresh_database(server_url: str, template: str = "template1", options: LiteralString = "") -> Iterator[str]:
    """Create a database on the server, and drop it with every connection to it at the end.

    `options` go on after the template, as `create database` has them.
    """
    name = f"test_{uuid4().hex}"
    try:
        administer(server_url, sql.SQL("create database {} template {} " + options), name, template)
    except pg.InsufficientPrivilege as error:
        raise ConfigurationError(
            f"{error.diag.message_primary}: each test has a database of its own; run: alter role … createdb, "
            "or override the fixture outbox_database with the URL of a database that is there"
        ) from error
    try:
        yield url_of({**conninfo_to_dict(server_url), "dbname": name})
    finally:
        _drop(server_url, name)


@contextmanager
def migrated_template(server_url: str) -> Iterator[str]:
    """Create a database with the newest schema that others are copied from, and answer its name."""
    with fresh_database(server_url) as url:
        with psycopg.connect(url) as connection:
            schema.migrate(connection, "public", schema.newest())
        yield str(conninfo_to_dict(url)["dbname"])


def _drop(server_url: str, name: str) -> None:
    with psycopg.connect(server_url, autocommit=True) as connection:
        # By itself `with (force)` looks only every tenth of a second whether the sessions that it ends have ended. What
        # cannot be ended in time is its error.
        deadline = time.monotonic() + _END_SECONDS
        while connection.execute(_OTHERS_END, [name]).fetchone() != (0,) and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
        connection.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))


def administer(server_url: str, statement: sql.SQL, *names: str) -> None:
    """Run one statement that no transaction may surround."""
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(statement.format(*map(sql.Identifier, names)))


def url_of(parts: dict[str, Any]) -> str:
    """A connection string as a URL, which other drivers take as well: libpq's key-value form is its own."""
    named = {name: str(value) for name, value in parts.items() if value is not None}
    # A password has no place there without a user.
    account = [quote(named.pop(name), safe="") for name in ("user", "password") if "user" in parts and name in named]
    database = quote(named.pop("dbname"), safe="")
    host = named.get("host", "")
    place = ""
    # A folder with a socket, and a list of hosts, have no place between the slashes.
    if host and not {"/", ","} & set(host):
        place = f"[{host}]" if ":" in host else host
        del named["host"]
        if port := named.pop("port", ""):
            place += f":{port}"
    further = f"?{urlencode(named, quote_via=quote)}" if named else ""
    return f"postgresql://{':'.join(account)}{'@' if account else ''}{place}/{database}{further}"
