"""Databases that tests hand on: emptied after a test, and dropped where it changed anything but rows.

A copy of a template costs some 300 files, and the first session of each builds its caches anew. Emptying costs a
tenth. Whether a database still has the schema of its template is asked of the catalogs, so no test has to say.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Self

import psycopg
from psycopg import sql

from relay.testing import fresh_database
from tests.support.looking import session
from tests.support.waiting import until

# A session that a test left may hold locks; it is given this long to end.
_END_SECONDS = 10.0
# Each truncation leaves dead rows in the catalogs, which every later one has to pass.
_USES = 100

# Postgres itself would look after a tenth of a second whether they have ended.
_OTHERS_END = """
select count(pg_terminate_backend(pid)) = 0 from pg_stat_activity
 where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'
"""

# What tests create, alter or drop; not what belongs to all databases of a server. An update gives a row of a catalog
# another xmin; a truncation updates pg_class, whose columns are named for that reason.
_SCHEMA = """
select md5(string_agg(fact, '|' order by fact)) from (
  select 'class' || concat_ws(',', oid, relname, relnamespace, relowner, relkind, relpersistence, relacl::text,
                              reloptions::text, relrowsecurity, relforcerowsecurity, relreplident, relchecks) as fact
    from pg_class where oid >= 16384 and relkind <> 't' and relkind <> 'i'
  union all select 'index' || concat_ws(',', i.oid, pg_index.xmin, reloptions) from pg_index
              join pg_class as i on i.oid = indexrelid where indexrelid >= 16384 and indrelid >= 16384
  union all select 'attribute' || attrelid || ',' || attnum || ',' || xmin from pg_attribute
             where attrelid in (select oid from pg_class where oid >= 16384 and relkind in ('r', 'v', 'p', 'm'))
  union all select 'namespace' || oid || ',' || nspname || ',' || coalesce(nspacl::text, '') from pg_namespace
             where nspname not like 'pg\\_%temp%'
  union all select 'proc' || oid || ',' || xmin from pg_proc where oid >= 16384
  union all select 'trigger' || oid || ',' || xmin from pg_trigger
  union all select 'constraint' || oid || ',' || xmin from pg_constraint where oid >= 16384
  union all select 'rewrite' || oid || ',' || xmin from pg_rewrite where oid >= 16384
  union all select 'policy' || oid || ',' || xmin from pg_policy
  union all select 'default' || oid || ',' || xmin from pg_attrdef
  union all select 'acl' || oid || ',' || xmin from pg_default_acl
  union all select 'type' || oid || ',' || xmin from pg_type where oid >= 16384
  union all select 'sequence' || seqrelid || ',' || xmin from pg_sequence
  union all select 'extension' || oid || ',' || xmin from pg_extension where oid >= 16384
  union all select 'event trigger' || oid || ',' || xmin from pg_event_trigger
  union all select 'statistics' || oid || ',' || xmin from pg_statistic_ext
  union all select 'publication' || oid || ',' || xmin from pg_publication
  union all select 'setting' || setrole || ',' || setconfig::text from pg_db_role_setting, pg_database
             where setdatabase = pg_database.oid and datname = current_database()
  union all select 'database' || concat_ws(',', datconnlimit, datallowconn, datacl::text, datdba) from pg_database
             where datname = current_database()
  union all select 'comment' || concat_ws(',', classoid, objoid, objsubid, description) from pg_description
             where objoid >= 16384
  union all select 'collation' || oid || ',' || xmin from pg_collation where oid >= 16384
  union all select 'operator' || oid || ',' || xmin from pg_operator where oid >= 16384
  union all select 'cast' || oid || ',' || xmin from pg_cast where oid >= 16384
  union all select 'wrapper' || oid || ',' || xmin from pg_foreign_data_wrapper
  union all select 'server' || oid || ',' || xmin from pg_foreign_server
  union all select 'large object' || oid || ',' || xmin from pg_largeobject_metadata
  union all select 'prepared' || gid from pg_prepared_xacts where database = current_database()
) as facts
"""
_WITH_ROWS = """
select c.oid::regclass::text from pg_class as c join pg_namespace as n on n.oid = relnamespace
 where relkind = 'r' and c.oid >= 16384 and nspname !~ '^pg_' and (pg_relation_size(c.oid) > 0 or reltuples >= 0)
 order by 1
"""
_NUMBERS_BEGIN_ANEW = """
select setval(format('%I.%I', schemaname, sequencename)::regclass, start_value, false) from pg_sequences
 where last_value is not null
"""


@dataclass(frozen=True)
class _New:
    """What a database looks like that was just copied."""

    schema: str
    kept: dict[str, str]
    """Tables with rows in the template, such as that of the migrations, and a digest of their rows."""

    @classmethod
    def of(cls, connection: psycopg.Connection[Any]) -> Self:
        """Of a database that was just copied."""
        return cls(_schema_of(connection), {table: _digest(connection, table) for table in _with_rows(connection)})


@contextmanager
def databases(server_url: str, template: str) -> Iterator["Databases"]:
    """Copies of a template, dropped at the end of the block."""
    with ExitStack() as opened:
        yield Databases(server_url, template, opened)


class Databases:
    """The copies of a template that no test has at the moment; more are made when a test asks for one."""

    def __init__(self, server_url: str, template: str, opened: ExitStack) -> None:
        self._server_url, self._template, self._opened = server_url, template, opened
        self._new: _New | None = None
        self._free: list[_Database] = []

    @contextmanager
    def handed(self) -> Iterator[str]:
        """The URL of one that is as the template is, for the length of the block."""
        database = self._free.pop() if self._free else self._copied()
        try:
            yield database.url
        finally:
            if self._is_new_again(database):
                self._free.append(database)
            else:
                database.dropped.close()

    def _copied(self) -> "_Database":
        dropped = self._opened.enter_context(ExitStack())
        url = dropped.enter_context(fresh_database(self._server_url, self._template))
        if self._new is None:
            with psycopg.connect(url, autocommit=True) as connection:
                self._new = _New.of(connection)
        return _Database(url, dropped)

    def _is_new_again(self, database: "_Database") -> bool:
        database.uses += 1
        if database.uses == _USES:
            return False
        assert self._new
        try:
            connection = session(database.url)
            connection.execute("discard all")
            return _emptied(connection, self._new)
        except psycopg.Error:
            # A test may have dropped the database, or closed it to new sessions.
            return False


@dataclass
class _Database:
    url: str
    dropped: ExitStack
    uses: int = 0


def _emptied(connection: psycopg.Connection[Any], new: _New) -> bool:
    """Leave no session, row, statistics or number that was drawn; false where a test changed more than that."""
    connection.execute("set lock_timeout = '5s'")
    until(lambda: _alone(connection), "the sessions that a test left have ended", _END_SECONDS, step=0.001)
    if _schema_of(connection) != new.schema:
        return False
    if any(_digest(connection, table) != digest for table, digest in new.kept.items()):
        return False
    if filled := [table for table in _with_rows(connection) if table not in new.kept]:
        connection.execute(sql.SQL("truncate {} cascade").format(sql.SQL(", ").join(map(_as_it_is, filled))))
        connection.execute("delete from pg_statistic where starelid >= 16384")
    connection.execute(_NUMBERS_BEGIN_ANEW)
    connection.execute("select pg_stat_force_next_flush()")
    connection.execute("select pg_stat_reset()")
    return True


def _alone(connection: psycopg.Connection[Any]) -> bool:
    row = connection.execute(_OTHERS_END).fetchone()
    assert row
    return bool(row[0])


def _schema_of(connection: psycopg.Connection[Any]) -> str:
    row = connection.execute(_SCHEMA).fetchone()
    assert row
    return str(row[0])


def _with_rows(connection: psycopg.Connection[Any]) -> list[str]:
    return [table for (table,) in connection.execute(_WITH_ROWS)]


def _digest(connection: psycopg.Connection[Any], table: str) -> str:
    query = sql.SQL("select md5(string_agg(t::text, '|' order by t::text)) from {} as t")
    row = connection.execute(query.format(_as_it_is(table))).fetchone()
    assert row
    return str(row[0])


def _as_it_is(table: str) -> sql.Composable:
    """A name that the server has quoted."""
    return sql.SQL(table)
