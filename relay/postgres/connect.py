"""Connections to the database that do not hang, and errors that say what to do about them."""

import asyncio
from typing import Any

import psycopg
from psycopg import IsolationLevel
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from relay.errors import ConfigurationError
from relay.postgres.reading import Connection

# A peer that vanished is noticed within these; the claim's locks are then the server's to release.
_LIVENESS: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}
# In pg_stat_activity, where neither a setting nor the URL says otherwise.
_NAME = "outbox-relay"
_HIGHEST_PORT = 65_535
DATABASE_URL = "DATABASE_URL"
# Parts of what the server says when no retry will help. The protocol carries their SQLSTATE, libpq does not.
_FINAL = (
    "authentication failed",
    "does not exist",
    "no pg_hba.conf entry",
    "no password supplied",
    "does not support SSL",
    ": invalid ",
)


def connection_string(text: str) -> str:
    """What somebody wrote for one, as it is used. Raises ValueError, to stand behind the setting's name."""
    text = text.strip()
    if text[:1] in {"'", '"'}:
        raise ValueError("begins with a quote; remove the quotes around it")
    scheme, plus, _ = text.partition("://")[0].partition("+")
    if plus and scheme.startswith("postgres"):
        raise ValueError("names a driver in its scheme; write postgresql:// without the + and what follows it")
    try:
        conninfo_to_dict(text)
    except psycopg.ProgrammingError:
        # libpq repeats parts of the string, and with them perhaps the password.
        raise ValueError("is not a connection string; write it like postgresql://user:password@host:5432/db") from None
    return text


def conninfo(url: str, app: str = "", setting: str = DATABASE_URL) -> str:
    """The connection string, with liveness settings where it names none itself, and named after `app` if given.

    Raises ConfigurationError where it is none that could work.
    """
    parts = conninfo_to_dict(url)
    _refuse_split_password(url, parts, setting)
    _refuse_port(parts, setting)
    named = {"application_name": app} if app else {}
    ours = {**_LIVENESS, "application_name": _NAME}
    return make_conninfo(url, **{**ours, **parts, **named, "client_encoding": "utf8"})


def place(url: str) -> str:
    """The host and the port to which a URL leads, as far as it names them; it must be one that `conninfo` takes."""
    parts = conninfo_to_dict(url)
    host, port = parts.get("hostaddr") or parts.get("host") or "localhost", parts.get("port") or "5432"
    return f"{host}:{port}"


def connect(url: str, app: str = "") -> psycopg.Connection[Any]:
    """Connect for a command that runs and ends."""
    try:
        connection = psycopg.connect(conninfo(url, app))
    except psycopg.Error as error:
        _refuse_final(error, DATABASE_URL)
        raise
    connection.isolation_level = IsolationLevel.READ_COMMITTED
    _require_utf8(connection)
    return connection


async def connect_async(url: str, app: str = "", setting: str = DATABASE_URL) -> psycopg.AsyncConnection[Any]:
    """Connect for whoever begins and commits in words of its own. `setting` names the URL in errors.

    Statements are prepared on the server, unless there is a pooler between, which may hand out another session each
    time: it is known by the process that it says it is, and is not.
    """
    try:
        connection = await Connection.connect(conninfo(url, app, setting), autocommit=True, prepare_threshold=None)
    except psycopg.Error as error:
        _refuse_final(error, setting)
        raise
    except asyncio.CancelledError as error:
        # What it came by has the socket, which would be open for as long as somebody remembers this end.
        raise error.with_traceback(None) from None
    try:
        told, answers = connection.info.backend_pid, await connection.execute("select pg_backend_pid()")
        if await answers.fetchone() == (told,):
            connection.prepare_threshold = 0
        # A server may have another default, as under which looking could end the transactions of others.
        await connection.set_isolation_level(IsolationLevel.READ_COMMITTED)
        _require_utf8(connection)
    except BaseException as error:  # a cancellation, too, leaves no session behind
        await connection.close()
        if isinstance(error, psycopg.Error):
            _refuse_final(error, setting)
        raise
    return connection


def _require_utf8(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    """Refuse a database in which some valid event could not be stored, or not be read back as it was measured."""
    encoding, name = connection.info.parameter_status("server_encoding"), connection.info.dbname
    # A pooler may not say it.
    if encoding not in {"UTF8", None}:
        connection.pgconn.finish()
        raise ConfigurationError(
            f"database {name!r} has the encoding {encoding}; events are JSON in UTF-8, "
            "create the database with: encoding 'UTF8'"
        )


def _refuse_split_password(url: str, parts: dict[str, Any], setting: str) -> None:
    """Refuse a URL whose password was cut at a special character: the rest of it would show up in errors as a host."""
    if "://" in url and "@" in f"{parts.get('host') or ''}{parts.get('dbname') or ''}":
        raise ConfigurationError(
            f"{setting} cannot be read: percent-encode the characters @ : / ? # % in its user and password"
        )


def _refuse_port(parts: dict[str, Any], setting: str) -> None:
    """Refuse what is no port without repeating it: in a URL that ends early it is the password."""
    ports = filter(None, str(parts.get("port") or "").split(","))
    if not all(port.strip().isdecimal() and 0 < int(port) <= _HIGHEST_PORT for port in ports):
        raise ConfigurationError(
            f"{setting} cannot be read: its port is not a number from 1 to {_HIGHEST_PORT}; "
            "write it like postgresql://user:password@host:5432/db"
        )


def _refuse_final(error: psycopg.Error, setting: str) -> None:
    text = str(error).strip()
    if isinstance(error, psycopg.ProgrammingError) or any(part in text for part in _FINAL):
        raise ConfigurationError(f"the database refuses {setting}: {text}") from error
