"""The outbox as an app of a Django project: what manage.py makes of it, on both drivers and beside `relay migrate`."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from relay import emit
from relay.dev.stack import Stack
from relay.outbox import ladder, schema
from relay.testing.databases import fresh_database
from tests.support import forked
from tests.support.commands import ROOT
from tests.support.migrating import held_migrations
from tests.support.outbox import event
from tests.support.portrait import portrait, recorded

pytestmark = pytest.mark.slow("starts Django again and again")

NEWEST = ladder.newest()
NAMES = [f"{each.version:04d}_{each.name}" for each in ladder.migrations()]

SETTINGS = """
import json
import os
import sys

if os.environ["DRIVER"] == "psycopg2":
    # As where it finds no libpq.
    sys.modules["psycopg"] = None

INSTALLED_APPS = ["relay.django", "shop"]
SECRET_KEY = "only in this test"
USE_TZ = True
globals().update(json.loads(os.environ["SETTINGS"]))
"""

MODELS = """
from django.db import models


class Order(models.Model):
    id = models.BigAutoField(primary_key=True)
"""

ROUTER = """
class Router:
    def allow_migrate(self, db, app_label, **hints):
        return db == "events" if app_label == "outbox" else None
"""

TESTS = """
from django.db import connection
from django.test import TestCase


class OutboxTest(TestCase):
    def test_the_outbox_is_there(self):
        with connection.cursor() as cursor:
            cursor.execute("select count(*) from OUTBOX.outbox_events")
            self.assertEqual(cursor.fetchone(), (0,))
"""

MAKES_THE_SCHEMA = """
from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("shop", "0001_initial")]
    run_before = [("outbox", "0001_outbox_events")]
    operations = [migrations.RunSQL("create schema events", "drop schema events")]
"""


class Project:
    """A project with an app of its own, on one database or more."""

    def __init__(self, folder: Path, database: str) -> None:
        self._folder = folder
        self.database = database
        (folder / "settings.py").write_text(SETTINGS)
        (folder / "routers.py").write_text(ROUTER)
        self.app = folder / "shop"
        self.app.mkdir()
        (self.app / "__init__.py").touch()
        (self.app / "models.py").write_text(MODELS)
        self.driver = "psycopg"
        self.settings: dict[str, Any] = {"DATABASES": {"default": place(database)}}

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command of manage.py; a warning of Python's fails it."""
        if self.driver != "psycopg":  # which is loaded in the others
            return subprocess.run(
                self._command(words), **self._place(), text=True, capture_output=True, timeout=60, check=False
            )
        words = ("django-admin", *words)
        return forked.run(
            "django.core.management:execute_from_command_line", words, **self._place(), timeout=60, strict=True
        )

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start one."""
        return subprocess.Popen(
            self._command(words), **self._place(), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

    def said(self, *words: str) -> str:
        """What a command says that succeeds."""
        done = self.run(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def refused(self, *words: str) -> str:
        """What a command says that fails, in words and not by a traceback."""
        done = self.run(*words)
        assert done.returncode == 1, done.stdout + done.stderr
        assert "Traceback" not in done.stderr, done.stderr
        return done.stderr

    @staticmethod
    def _command(words: tuple[str, ...]) -> list[str]:
        return [sys.executable, "-W", "error", "-m", "django", *words]

    def _place(self) -> dict[str, Any]:
        environment = {
            **os.environ,
            "PYTHONPATH": f"{self._folder}{os.pathsep}{ROOT}",
            "DJANGO_SETTINGS_MODULE": "settings",
            "DRIVER": self.driver,
            "SETTINGS": json.dumps(self.settings),
        }
        return {"cwd": self._folder, "env": environment}


def place(database: str, **other: Any) -> dict[str, Any]:
    """The database, as Django's settings name one."""
    parts: Mapping[str, Any] = conninfo_to_dict(database)
    names = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
    return {
        "ENGINE": "django.db.backends.postgresql",
        **{name: str(parts[part]) for name, part in names.items()},
        # A template that no test has open.
        "TEST": {"NAME": f"{parts['dbname']}_of_django", "TEMPLATE": "template0"},
        **other,
    }


@pytest.fixture
def project(tmp_path: Path, bare_database: str) -> Project:
    """A project on a database without an outbox."""
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
    """What the app made, without Django's own table."""
    return portrait(connection, name, but="django_migrations")


def test_every_version_of_the_schema_has_its_migration() -> None:
    """Of its name, behind the one before it, and with a way back."""
    folder = ROOT / "relay/django/migrations"
    assert sorted(path.stem for path in folder.glob("0*.py")) == NAMES
    for version, (name, before) in enumerate(zip(NAMES, [None, *NAMES], strict=False), start=1):
        text = (folder / f"{name}.py").read_text(encoding="utf-8")
        assert re.findall(r"OutboxVersion\((\d+)\)", text) == [str(version)]
        assert re.findall(r'\("outbox", "(.*)"\)', text) == ([before] if before else [])


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_migrate_makes_what_relay_migrate_makes(
    project: Project, connection: psycopg.Connection[Any], migrated: psycopg.Connection[Any], driver: str
) -> None:
    """On both drivers, the one without the other; the way back leaves nothing behind."""
    project.driver = driver
    before = made(connection)

    assert f"Outbox schema version {NEWEST}" in project.said("migrate", "--plan")
    assert f"Applying outbox.{NAMES[-1]}... OK" in project.said("migrate")
    assert made(connection) == made(migrated)
    assert recorded(connection) == recorded(migrated)
    assert schema.migrate(connection, "public", NEWEST) == []
    assert "No changes detected" in project.said("makemigrations", "--check", "--dry-run", "outbox")
    with connection.transaction():
        emit(connection, event())

    said = project.refused("migrate", "outbox", "zero")
    assert "CommandError: outbox_events still holds 1 event(s) that were not published. Let the relay drain" in said
    assert recorded(connection) == recorded(migrated)[:1], "what was undone before it is recorded as that"
    assert "(outbox.W001)" in project.said("check", "--database", "default")
    connection.execute("delete from outbox_events")
    project.said("migrate", "outbox", "zero")
    assert made(connection) == before


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_what_sqlmigrate_prints_does_the_same(
    project: Project, connection: psycopg.Connection[Any], migrated: psycopg.Connection[Any], driver: str
) -> None:
    """It is the SQL itself, and it comes back on the same road."""
    project.driver = driver
    before = made(connection)

    scripts = [project.said("sqlmigrate", "outbox", name) for name in NAMES]
    back = [project.said("sqlmigrate", "--backwards", "outbox", name) for name in reversed(NAMES)]
    assert "create table outbox_events (" in scripts[0]
    for script in scripts:
        connection.execute(script.encode())
    assert made(connection) == made(migrated)
    assert recorded(connection) == recorded(migrated)
    for script in back:
        connection.execute(script.encode())
    assert made(connection) == before


def test_each_step_alone_is_taken_and_taken_back(project: Project, connection: psycopg.Connection[Any]) -> None:
    """A release can be taken back without taking back all before it."""
    for version, name in enumerate(NAMES, start=1):
        project.said("migrate", "outbox", name)
        assert schema.version(connection, "public") == version
    for version, name in reversed(list(enumerate(NAMES[:-1], start=1))):
        project.said("migrate", "outbox", name)
        assert schema.version(connection, "public") == version


@pytest.mark.parametrize("there", [1, 3, NEWEST])
def test_an_outbox_of_relay_migrate_is_continued(
    project: Project, connection: psycopg.Connection[Any], migrated: psycopg.Connection[Any], there: int
) -> None:
    """Nothing is done twice, and what operators had stored is there afterwards."""
    schema.migrate(connection, "public", there)
    connection.execute("create table kept as select xmin::text as taken_by, version from outbox_migrations")

    project.said("migrate")
    assert project.said("migrate").count("No migrations to apply") == 1
    again = "select xmin::text, version from outbox_migrations where version <= %s order by version"
    assert connection.execute(again, [there]).fetchall() == connection.execute("table kept").fetchall()
    connection.execute("drop table kept")
    assert made(connection) == made(migrated)


def test_a_record_that_is_ahead_of_the_schema_is_refused_in_words(
    project: Project, connection: psycopg.Connection[Any]
) -> None:
    """A step is not taken onto a schema that lacks those before it."""
    project.said("migrate", "outbox", NAMES[1])
    schema.migrate(connection, "public", 0)
    said = project.refused("migrate")
    assert 'the outbox in schema "public" is at version 0, this step needs 2; nothing was changed. Bring it' in said
    schema.migrate(connection, "public", 2)
    project.said("migrate")


def test_a_database_that_no_router_names_is_asked_what_to_do(project: Project) -> None:
    """A project on another database is told both ways out, and can take one."""
    sqlite = {"ENGINE": "django.db.backends.sqlite3", "NAME": "here.sqlite3"}
    project.settings["DATABASES"]["default"] = sqlite
    said = project.refused("migrate")
    assert "CommandError: the outbox lives in Postgres, and database 'default' is sqlite." in said
    assert "DATABASE_ROUTERS" in said

    project.settings["DATABASE_ROUTERS"] = ["routers.Router"]
    project.said("migrate")
    assert "no issues" in project.said("check", "--database", "default")


def test_a_router_says_which_database_has_it(
    project: Project, stack: Stack, connection: psycopg.Connection[Any]
) -> None:
    """The others get a record of the migrations, as Django does it, and no table."""
    with fresh_database(stack.database_url) as url:
        project.settings["DATABASES"]["events"] = place(url)
        project.settings["DATABASE_ROUTERS"] = ["routers.Router"]
        for alias in ("default", "events"):
            project.said("migrate", "--database", alias)
            assert "no issues" in project.said("check", "--database", alias)
        with psycopg.connect(url) as events:
            assert schema.version(events, "public") == NEWEST
        assert made(connection) == []


def test_a_second_database_of_another_kind_is_passed_over(
    project: Project, connection: psycopg.Connection[Any]
) -> None:
    """Without a router, the outbox is where Postgres is."""
    project.settings["DATABASES"]["cache"] = {"ENGINE": "django.db.backends.sqlite3", "NAME": "here.sqlite3"}
    project.said("migrate", "--database", "cache")
    project.said("migrate")
    assert schema.version(connection, "public") == NEWEST


@pytest.mark.parametrize("name", ["public", "events"])
def test_the_test_runner_makes_a_database_with_an_outbox(project: Project, name: str) -> None:
    """Another schema is made by a migration of the project's own that runs before."""
    (project.app / "tests.py").write_text(TESTS.replace("OUTBOX", name))
    project.said("makemigrations", "shop")
    if name == "events":
        project.settings["OUTBOX_SCHEMA"] = name
        assert 'has no schema "events". Create it first' in project.refused("migrate")
        (project.app / "migrations" / "0002_events.py").write_text(MAKES_THE_SCHEMA)
    assert "Ran 1 test" in project.said("test", "--noinput", "shop")


def test_the_outbox_lives_in_another_schema(
    project: Project, connection: psycopg.Connection[Any], migrated: psycopg.Connection[Any]
) -> None:
    """OUTBOX_SCHEMA names it; the check looks there."""
    for each in (connection, migrated):
        each.execute('create schema "%Odd"; set search_path to "%Odd"')
    schema.migrate(migrated, "public", 0)
    schema.migrate(migrated, "%Odd", NEWEST)
    project.settings["OUTBOX_SCHEMA"] = "%Odd"

    assert "in schema '%Odd' of database 'default' is at version 0" in project.said("check", "--database", "default")
    project.said("migrate")
    assert made(connection, '"%Odd"') == made(migrated, '"%Odd"')
    assert "no issues" in project.said("check", "--database", "default")


@pytest.mark.parametrize("wrong", ["", 5, None, ["public"]])
def test_a_schema_that_cannot_be_is_refused(project: Project, wrong: Any) -> None:
    """With the setting that names it."""
    project.settings["OUTBOX_SCHEMA"] = wrong
    done = project.run("migrate", "--skip-checks")
    assert done.returncode == 1
    assert f"OUTBOX_SCHEMA is {wrong!r}, which is no name of a schema" in done.stderr


def test_the_check_says_what_to_do(project: Project, connection: psycopg.Connection[Any]) -> None:
    """Behind the code, unknown to Django, ahead of the code, not to be seen: and nothing where all is well."""

    def checked() -> str:
        return project.said("check", "--database", "default")

    assert "no issues" in project.said("check"), "no database is asked where none is named"
    assert f"is at version 0, this code brings {NEWEST}" in checked()
    assert "Run: python manage.py migrate outbox --database default" in checked()
    assert project.run("check", "--database", "default", "--fail-level", "WARNING").returncode == 1

    schema.migrate(connection, "public", NEWEST)
    unknown = checked()
    assert f"is at version {NEWEST}, and Django has no record of {', '.join(NAMES)}" in unknown
    assert "(outbox.W002)" in unknown
    project.said("migrate")
    assert "no issues" in checked()

    schema.migrate(connection, "public", 2)
    assert "Run: python -m relay migrate" in checked(), "Django believes to be done"
    schema.migrate(connection, "public", NEWEST)

    connection.execute("insert into outbox_migrations (version, name) values (%s, 'next')", [NEWEST + 1])
    assert "no issues" in checked(), "the release before works on the next one's schema"
    connection.execute("insert into outbox_migrations (version, name) values (999, 'from_the_future')")
    assert f"is at version 999, newer than the {NEWEST} of this code" in checked()


def test_the_check_of_a_role_that_may_not_look_says_so(project: Project, connection: psycopg.Connection[Any]) -> None:
    """A service that only emits has no right to the record of versions."""
    project.said("migrate")
    name = f"role_{connection.info.dbname}"
    connection.execute(f"create role \"{name}\" login password 'secret'".encode())
    try:
        connection.execute(f'grant usage on schema public to "{name}"'.encode())
        project.settings["DATABASES"]["default"].update(USER=name, PASSWORD="secret")  # noqa: S106 -- a test's own
        said = project.said("check", "--database", "default")
        assert "cannot be looked at: permission denied for table outbox_migrations" in said
    finally:
        connection.execute(f'drop owned by "{name}"; drop role "{name}"'.encode())


def test_a_project_may_leave_the_schema_to_relay_migrate(project: Project, connection: psycopg.Connection[Any]) -> None:
    """MIGRATION_MODULES takes the migrations out; the check stays."""
    project.settings["MIGRATION_MODULES"] = {"outbox": None}
    project.said("migrate")
    assert "Run: python -m relay migrate" in project.said("check", "--database", "default")
    schema.migrate(connection, "public", NEWEST)
    assert "no issues" in project.said("check", "--database", "default")


def test_two_processes_migrate_at_once(
    project: Project, connection: psycopg.Connection[Any], migrated: psycopg.Connection[Any]
) -> None:
    """Each step is taken by one of them; the other finds it done."""
    # With it Django makes its own table, which two that make it at once do not share.
    project.said("migrate", "outbox", "0001")
    started = []
    try:
        with held_migrations(project.database, waiting=2):
            started += [project.start("migrate", "outbox") for _ in range(2)]
        outputs = [process.communicate(timeout=60)[0] for process in started]
    finally:
        for process in started:
            process.kill()
            process.communicate()
    assert [process.returncode for process in started] == [0, 0], outputs
    assert made(connection) == made(migrated)
    assert recorded(connection) == recorded(migrated)


def test_a_role_without_the_right_is_told_which_one(project: Project, connection: psycopg.Connection[Any]) -> None:
    """Not by a traceback."""
    connection.execute("create schema mine")
    project.settings["OUTBOX_SCHEMA"] = "mine"
    name = f"role_{connection.info.dbname}"
    connection.execute(f"create role \"{name}\" login password 'secret'".encode())
    try:
        connection.execute(f'grant usage on schema mine to "{name}"; grant all on schema public to "{name}"'.encode())
        project.settings["DATABASES"]["default"].update(USER=name, PASSWORD="secret")  # noqa: S106 -- a test's own
        said = project.refused("migrate", "outbox")
        assert 'may not change schema "mine": permission denied for schema mine. Grant it create' in said
    finally:
        connection.execute(f'drop owned by "{name}"; drop role "{name}"'.encode())
