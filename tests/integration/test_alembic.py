"""The outbox in a project's Alembic revisions: on every driver, at once or printed, and beside autogenerate."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from pathlib import Path
from typing import Any

import psycopg
import pytest
from alembic import command, op
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.util import CommandError
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import Column, Integer, MetaData, NullPool, Table, create_engine

import relay.alembic as outbox
from relay import emit
from relay.outbox import ladder, schema
from tests.support.commands import ROOT
from tests.support.migrating import held_migrations
from tests.support.outbox import event
from tests.support.portrait import portrait, recorded

pytestmark = pytest.mark.slow("runs Alembic again and again")

NEWEST = ladder.newest()
DRIVERS = ["psycopg", "psycopg_async", "psycopg2", "asyncpg"]

ENV = """
import asyncio

from alembic import context
from sqlalchemy import create_engine, pool
from sqlalchemy.ext.asyncio import create_async_engine

url, options = context.config.attributes["url"], context.config.attributes["options"]


def migrate(connection):
    context.configure(connection=connection, **options)
    with context.begin_transaction():
        context.run_migrations()


async def migrate_async():
    engine = create_async_engine(url, poolclass=pool.NullPool, **context.config.attributes["engine"])
    async with engine.connect() as connection:
        await connection.run_sync(migrate)


if context.is_offline_mode():
    context.configure(url=url, **options)
    with context.begin_transaction():
        context.run_migrations()
elif "async" in url.partition(":")[0]:
    asyncio.run(migrate_async())
else:
    with create_engine(url, poolclass=pool.NullPool, **context.config.attributes["engine"]).connect() as connection:
        migrate(connection)
"""

REVISION = """
import relay.alembic as outbox
from alembic import op

revision = "{revision}"
down_revision = {down_revision!r}


def upgrade():
    {upgrade}


def downgrade():
    {downgrade}
"""


class Project:
    """A project with revisions of its own, on one database."""

    def __init__(self, folder: Path, database: str) -> None:
        self._folder = folder / "revisions"
        (self._folder / "versions").mkdir(parents=True)
        (self._folder / "env.py").write_text(ENV)
        (self._folder / "script.py.mako").write_text("${upgrades}\n${downgrades}\n")
        self._last: str | None = None
        self.database = database
        self.driver = "psycopg"
        self.options: dict[str, Any] = {"target_metadata": MetaData(), "include_object": outbox.include_object}
        self.engine: dict[str, Any] = {}

    @property
    def url(self) -> str:
        """Where its database is, by its driver."""
        parts = conninfo_to_dict(self.database)
        return "postgresql+{driver}://{user}:{password}@{host}:{port}/{dbname}".format(driver=self.driver, **parts)

    def revise(self, upgrade: str, downgrade: str = "pass") -> None:
        """Write the next revision."""
        revision = f"r{len(list((self._folder / 'versions').glob('*.py'))) + 1}"
        text = REVISION.format(revision=revision, down_revision=self._last, upgrade=upgrade, downgrade=downgrade)
        (self._folder / "versions" / f"{revision}.py").write_text(text)
        self._last = revision

    def upgrade(self, revision: str = "head") -> None:
        """Go up."""
        command.upgrade(self._config(), revision)

    def start(self) -> subprocess.Popen[str]:
        """Go up in a process of its own."""
        program = """
import sys
from alembic import command
from alembic.config import Config

config = Config()
config.set_main_option("script_location", sys.argv[1])
config.set_main_option("path_separator", "os")
config.attributes.update(url=sys.argv[2], options={}, engine={})
command.upgrade(config, "head")
"""
        return subprocess.Popen(
            [sys.executable, "-W", "error", "-c", program, str(self._folder), self.url],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def downgrade(self, revision: str = "base") -> None:
        """Go back."""
        command.downgrade(self._config(), revision)

    def check(self) -> None:
        """Fail where autogenerate would do anything."""
        command.check(self._config())

    def script(self, way: Callable[..., None], revisions: str) -> str:
        """What `--sql` prints."""
        printed = StringIO()
        way(self._config(printed), revisions, sql=True)
        return printed.getvalue()

    def run(self, script: str) -> None:
        """Hand a printed script to another tool."""
        with psycopg.connect(self.database, autocommit=True) as connection:
            connection.execute(script.encode())

    def _config(self, printed: StringIO | None = None) -> Config:
        config = Config(stdout=StringIO(), output_buffer=printed)
        config.set_main_option("script_location", str(self._folder))
        config.set_main_option("path_separator", "os")
        config.attributes.update(url=self.url, options=self.options, engine=self.engine)
        return config


@pytest.fixture
def project(tmp_path: Path, bare_database: str) -> Project:
    """A project without revisions, on a database without an outbox."""
    return Project(tmp_path, bare_database)


@pytest.fixture
def connection(bare_database: str) -> Iterator[psycopg.Connection[Any]]:
    """A look at its database."""
    with psycopg.connect(bare_database, autocommit=True) as opened:
        yield opened


@pytest.fixture
def migrated(database: str) -> Iterator[psycopg.Connection[Any]]:
    """What `relay migrate` makes."""
    with psycopg.connect(database, autocommit=True) as opened:
        yield opened


def made(connection: psycopg.Connection[Any], name: str = "public") -> list[tuple[Any, ...]]:
    """What the revisions made, without Alembic's own table."""
    return portrait(connection, name, but="alembic_version")


def going_up_one_by_one(project: Project) -> None:
    """Write one revision for each version."""
    for version in range(1, NEWEST + 1):
        project.revise(f"outbox.upgrade(op, to={version})", f"outbox.downgrade(op, to={version - 1})")


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_revision_makes_what_relay_migrate_makes(
    project: Project, connection: psycopg.Connection[Any], migrated: psycopg.Connection[Any], driver: str
) -> None:
    """On every driver; the way back leaves nothing behind."""
    project.driver = driver
    before = made(connection)
    project.revise(f"outbox.upgrade(op, to={NEWEST})", "outbox.downgrade(op, to=0)")

    project.upgrade()
    assert made(connection) == made(migrated)
    assert recorded(connection) == recorded(migrated)
    assert schema.migrate(connection, "public", NEWEST) == []
    with connection.transaction():
        emitted = emit(connection, event())
    assert emitted.inserted
    connection.execute("delete from outbox_events")

    project.downgrade()
    assert made(connection) == before


@pytest.mark.parametrize("driver", DRIVERS)
def test_the_printed_revisions_make_the_same(
    project: Project, connection: psycopg.Connection[Any], migrated: psycopg.Connection[Any], driver: str
) -> None:
    """Whatever the dialect does with `%` and `:name`, which are in it."""
    project.driver = driver
    before = made(connection)
    going_up_one_by_one(project)

    up, down = project.script(command.upgrade, "head"), project.script(command.downgrade, f"r{NEWEST}:base")
    project.run(up)
    assert made(connection) == made(migrated)
    assert recorded(connection) == recorded(migrated)
    project.run(down)
    assert made(connection) == before


def test_both_forms_of_op_are_taken(project: Project, connection: psycopg.Connection[Any]) -> None:
    """The module that revisions import, and the object that programs make."""
    engine = create_engine(project.url, poolclass=NullPool)
    with engine.begin() as bound:
        operations = Operations(MigrationContext.configure(bound))
        outbox.upgrade(operations, to=NEWEST)
    with engine.begin() as bound, Operations.context(MigrationContext.configure(bound)):
        outbox.downgrade(op, to=1)
    assert schema.version(connection, "public") == 1


def test_revisions_go_up_and_down_one_version_at_a_time(
    project: Project, connection: psycopg.Connection[Any], migrated: psycopg.Connection[Any]
) -> None:
    """A revision means the same for ever: the version that it names."""
    going_up_one_by_one(project)
    for version in range(1, NEWEST + 1):
        project.upgrade(f"r{version}")
        assert schema.version(connection, "public") == version
    assert made(connection) == made(migrated)
    for version in range(NEWEST - 1, 0, -1):
        project.downgrade(f"r{version}")
        assert schema.version(connection, "public") == version


@pytest.mark.parametrize("there", range(NEWEST + 1))
def test_what_is_there_is_not_done_again(
    project: Project, connection: psycopg.Connection[Any], migrated: psycopg.Connection[Any], there: int
) -> None:
    """An outbox that `relay migrate` began is continued, and one that is ahead of the revision is left there."""
    schema.migrate(connection, "public", there)
    project.revise("outbox.upgrade(op, to=2)", "outbox.downgrade(op, to=3)")

    project.upgrade()
    assert schema.version(connection, "public") == max(there, 2)
    project.downgrade()
    assert schema.version(connection, "public") == min(max(there, 2), 3)
    schema.migrate(connection, "public", NEWEST)
    assert made(connection) == made(migrated)


@pytest.mark.parametrize("name", ["events", 'Odd "schema"; $outbox$ --\n', "with.dot", "it's \\ 50%s :MI"])
@pytest.mark.parametrize("printed", [False, True])
def test_the_outbox_lives_in_any_schema(
    project: Project,
    connection: psycopg.Connection[Any],
    migrated: psycopg.Connection[Any],
    name: str,
    *,
    printed: bool,
) -> None:
    """What is made there is what `relay migrate` makes there."""
    for each in (connection, migrated):
        each.execute(sql.SQL("create schema {}").format(sql.Identifier(name)))
    quoted = sql.Identifier(name).as_string(None)
    schema.migrate(migrated, "public", 0)
    schema.migrate(migrated, name, NEWEST)
    project.revise(f"outbox.upgrade(op, to={NEWEST}, schema={name!r})", f"outbox.downgrade(op, to=0, schema={name!r})")

    if printed:
        project.run(project.script(command.upgrade, "head"))
    else:
        project.upgrade()
    for each in (connection, migrated):
        each.execute("select set_config('search_path', %s, false)", (quoted,))
    assert portrait(connection, quoted) == portrait(migrated, quoted)
    project.downgrade()
    assert portrait(connection, quoted) == []


@pytest.mark.parametrize("driver", DRIVERS)
def test_what_the_revision_had_set_is_put_back(
    project: Project, connection: psycopg.Connection[Any], driver: str
) -> None:
    """The statements that follow in its transaction find their own tables, and wait as long as they did."""
    project.driver = driver
    connection.execute("create schema mine")
    settings = "op.execute(\"set search_path to mine; set lock_timeout to '7s'\")"
    if driver == "asyncpg":
        settings = "op.execute('set search_path to mine'); op.execute(\"set lock_timeout to '7s'\")"
    project.revise(
        f"{settings}; outbox.upgrade(op, to={NEWEST}); "
        "op.execute(\"create table found as select current_setting('lock_timeout') as patience\")"
    )
    project.options["version_table_schema"] = "public"

    project.upgrade()
    assert connection.execute("select patience from mine.found").fetchall() == [("7s",)]
    assert schema.version(connection, "public") == NEWEST


def test_autogenerate_leaves_the_outbox_alone(project: Project, connection: psycopg.Connection[Any]) -> None:
    """In whatever schema it lives: `alembic check` finds nothing to do, and a table of the project's it does find."""
    connection.execute("create schema events")
    schema.migrate(connection, "public", NEWEST)
    schema.migrate(connection, "events", NEWEST)
    project.revise("pass")
    project.upgrade()
    project.options["include_schemas"] = True
    project.check()

    del project.options["include_object"]
    with pytest.raises(CommandError, match="outbox_events"):
        project.check()
    project.options["include_name"] = outbox.include_name
    project.check()
    connection.execute("create table mine (id integer)")
    with pytest.raises(CommandError, match="mine"):
        project.check()


def test_autogenerate_leaves_a_model_of_the_outbox_alone(project: Project, connection: psycopg.Connection[Any]) -> None:
    """A project that reads the table through a class of its own does not have it made, or changed, by that."""
    metadata = project.options["target_metadata"]
    Table("outbox_events", metadata, Column("id", Integer, primary_key=True), Column("mine", Integer, index=True))
    project.revise("pass")
    project.upgrade()
    project.check()
    schema.migrate(connection, "public", NEWEST)
    project.check()


def test_a_filter_of_the_projects_own_goes_with_ours(project: Project, connection: psycopg.Connection[Any]) -> None:
    """It is asked about everything but the outbox."""
    asked = []

    def mine(thing: Any, name: str | None, type_: Any, reflected: bool, compare_to: Any) -> bool:  # noqa: ARG001, FBT001 -- Alembic's
        asked.append(name)
        return name != "legacy"

    schema.migrate(connection, "public", NEWEST)
    connection.execute("create table legacy (id integer)")
    project.options["include_object"] = outbox.leave_alone(mine)
    project.revise("pass")
    project.upgrade()
    project.check()
    assert asked == ["legacy"]


@pytest.mark.parametrize("driver", DRIVERS)
def test_events_that_wait_refuse_the_way_back_in_words(
    project: Project, connection: psycopg.Connection[Any], driver: str
) -> None:
    """In one sentence and its remedy, without the statement; nothing was changed."""
    project.driver = driver
    project.revise(f"outbox.upgrade(op, to={NEWEST})", "outbox.downgrade(op, to=0)")
    project.upgrade()
    with connection.transaction():
        emit(connection, event())

    with pytest.raises(
        CommandError, match=r"^outbox_events still holds 1 event\(s\) that were not published\. Let the"
    ):
        project.downgrade()
    assert schema.version(connection, "public") == NEWEST


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            "outbox.upgrade(op, to=99)",
            rf"no schema version 99; this code knows 0 to {NEWEST}\. Is the release of outbox-",
        ),
        ("outbox.upgrade(op, to=0)", "no step up to schema version 0"),
        ("outbox.upgrade(op, to=True)", "no schema version True"),
        ("outbox.upgrade(op, to='5')", "no schema version '5'"),
        (
            f"outbox.downgrade(op, to={NEWEST})",
            f"no step down to schema version {NEWEST}; name one from 0 to {NEWEST - 1}",
        ),
        ("outbox.downgrade(op, to=-1)", "no schema version -1"),
        ("outbox.upgrade(op, to=1, schema='')", "'' is no name of a schema"),
        ("outbox.upgrade(op, to=1, schema=5)", "5 is no name of a schema"),
        ("outbox.upgrade(op, to=1, schema='missing')", 'has no schema "missing"\\. Create it first, or name another'),
    ],
)
def test_a_call_that_cannot_be_right_is_refused(project: Project, call: str, words: str) -> None:
    """With what there is."""
    project.revise(call)
    with pytest.raises(CommandError, match=words):
        project.upgrade()


def test_a_schema_of_a_later_release_is_not_taken_back(project: Project, connection: psycopg.Connection[Any]) -> None:
    """This code does not know how; what it would bring up is there."""
    schema.migrate(connection, "public", NEWEST)
    connection.execute("insert into outbox_migrations (version, name) values (999, 'from_the_future')")
    project.revise(f"outbox.upgrade(op, to={NEWEST})", "outbox.downgrade(op, to=0)")
    project.upgrade()
    with pytest.raises(CommandError, match=f"is at version 999, newer than the {NEWEST} of this code; nothing was"):
        project.downgrade()
    assert schema.version(connection, "public") == 999


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_transaction_that_does_not_see_what_was_committed_takes_no_step_back(
    project: Project, connection: psycopg.Connection[Any], level: str
) -> None:
    """It would drop an event that was stored while it waited for the table. The way up needs no such care."""
    project.engine = {"isolation_level": level}
    project.revise(f"outbox.upgrade(op, to={NEWEST})", "outbox.downgrade(op, to=0)")
    project.upgrade()
    with pytest.raises(CommandError, match=f"no step back in a {level.lower()} transaction.*read committed"):
        project.downgrade()
    assert schema.version(connection, "public") == NEWEST
    project.engine = {}
    project.downgrade()


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_role_without_the_right_is_told_which_one(
    project: Project, connection: psycopg.Connection[Any], driver: str
) -> None:
    """Since Postgres 15 nobody but its owner creates in public."""
    project.driver = driver
    role = sql.Identifier(f"role_{connection.info.dbname}")
    connection.execute(sql.SQL("create schema mine; create role {}").format(role))
    connection.execute(sql.SQL("grant usage on schema mine to {}").format(role))
    try:
        project.revise(f"op.execute('set local role {role.as_string()}'); outbox.upgrade(op, to=1, schema='mine')")
        with pytest.raises(CommandError, match=r'may not change schema "mine": permission denied for.*Grant it create'):
            project.upgrade()
    finally:
        connection.execute(sql.SQL("drop owned by {}").format(role))
        connection.execute(sql.SQL("drop role {}").format(role))


def test_another_database_is_refused_in_words(project: Project) -> None:
    """Before anything is sent to it."""
    project.revise("outbox.upgrade(op, to=1)")
    config = project._config(StringIO())
    config.attributes["url"] = "sqlite://"
    with pytest.raises(CommandError, match="lives in Postgres, and this migration runs on sqlite"):
        command.upgrade(config, "head")


def test_of_two_that_migrate_at_once_one_does_it(
    project: Project, connection: psycopg.Connection[Any], migrated: psycopg.Connection[Any]
) -> None:
    """The other waits, and finds it done; `relay migrate` is the same to both."""
    project.revise(f"outbox.upgrade(op, to={NEWEST})")
    printed = project.script(command.upgrade, "head")
    (ours,) = re.findall(r"^do \$outbox\$.*?^\$outbox\$;$", printed, re.MULTILINE | re.DOTALL)

    def relay_migrate() -> None:
        with psycopg.connect(project.database) as other:
            schema.migrate(other, "public", NEWEST)

    with ThreadPoolExecutor(6) as threads:
        with held_migrations(project.database, waiting=6):
            started = [threads.submit(project.run, ours) for _ in range(4)]
            started += [threads.submit(relay_migrate) for _ in range(2)]
        for each in started:
            each.result()
    assert made(connection) == made(migrated)
    assert recorded(connection) == recorded(migrated)


def test_of_two_alembics_at_once_one_makes_the_outbox(
    project: Project, connection: psycopg.Connection[Any], migrated: psycopg.Connection[Any]
) -> None:
    """The other finds it made, and then that its revision was recorded meanwhile: Alembic itself takes no lock."""
    project.revise("pass")
    project.upgrade()
    project.revise(f"outbox.upgrade(op, to={NEWEST})")
    started: list[subprocess.Popen[str]] = []
    try:
        with held_migrations(project.database, waiting=2):
            started += [project.start() for _ in range(2)]
        outputs = [process.communicate(timeout=60)[0] for process in started]
    finally:
        for process in started:
            process.kill()
            process.communicate()
    assert sorted(process.returncode for process in started) == [0, 1], outputs
    assert sum("expected to match one row when updating 'r1' to 'r2'" in said for said in outputs) == 1
    assert made(connection) == made(migrated)
    assert recorded(connection) == recorded(migrated)


def test_a_transaction_in_the_way_ends_it_in_words(
    project: Project, connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting on would queue all traffic up behind the migration."""
    monkeypatch.setattr("relay.postgres.script.LOCK_TIMEOUT", "50ms")
    project.revise("outbox.upgrade(op, to=2)")
    project.revise("outbox.upgrade(op, to=4)")
    project.upgrade("r1")
    with psycopg.connect(project.database) as other:
        other.execute("lock table outbox_events in access share mode; lock table outbox_events in row exclusive mode")
        with pytest.raises(
            CommandError, match=r"did not end in time; nothing was changed\. Find it in pg_stat_activity"
        ):
            project.upgrade()
    assert schema.version(connection, "public") == 2
