"""Databases of the stand that one measurement has for itself."""

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from benchmarks.stand import Stand


@contextmanager
def database(stand: Stand, name: str) -> Iterator[str]:
    """An empty one, for as long as the block lasts."""
    drop = sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name))
    with psycopg.connect(stand.database_url, autocommit=True) as connection:
        connection.execute(drop)
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        try:
            yield urlsplit(stand.database_url)._replace(path=f"/{name}").geturl()
        finally:
            connection.execute(drop)


def settle(url: str) -> None:
    """Leave nothing of the setup to be written while somebody is measured."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("vacuum analyze")
        connection.execute("checkpoint")


def count(url: str, query: str) -> int:
    """The one number that a query answers with."""
    with psycopg.connect(url) as connection:
        row = connection.execute(query.encode()).fetchone()
    return int(row[0]) if row else 0
