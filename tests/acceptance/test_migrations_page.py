"""The snippets of docs/migrations.md, in a project that consists of them."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from consumers.inbox.schema import INBOX
from relay.dev.account import postgres_account
from relay.dev.programs import postgres_programs
from relay.dev.sandbox import Sandbox
from relay.outbox import schema
from relay.outbox.ladder import OUTBOX
from relay.postgres.ladder import Ladder
from relay.postgres.schema import Versions
from tests.support.commands import ROOT

pytestmark = pytest.mark.slow("follows a page, process by process")

PAGE = (ROOT / "docs/migrations.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^```python\n# ([\w./]+).*\n((?:(?!```).*\n)*)```$", PAGE, re.MULTILINE))
BY_RELAY, AS_SQL, BY_ALEMBIC, BY_DJANGO, OF_INBOX = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)

ALEMBIC_INI = "[alembic]\nscript_location = revisions\npath_separator = os\n"
MANAGE = (
    "import sys\nfrom django.core.management import execute_from_command_line\nexecute_from_command_line(sys.argv)\n"
)
DATABASES = """
import os
SECRET_KEY = "only in this test"
USE_TZ = True
DATABASES = {"default": {"ENGINE": "django.db.backends.postgresql", "NAME": os.environ["PGDATABASE"]}}
"""


class Reader:
    """Somebody who does what the page says, with its files."""

    def __init__(self, folder: Path, database: str, programs: Path) -> None:
        parts = {key: str(value) for key, value in conninfo_to_dict(database).items()}
        url = "://{user}:{password}@{host}:{port}/{dbname}".format(**parts)
        self._folder, self._programs, self._database = folder, programs, database
        self.settings = {
            "DATABASE_URL": f"postgresql{url}",
            "SQLALCHEMY_URL": f"postgresql+psycopg{url}",
            **{f"PG{name.upper()}": parts[name] for name in ("host", "port", "user", "password")},
            "PGDATABASE": parts["dbname"],
            "DJANGO_SETTINGS_MODULE": "settings",
            "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}",
            "PYTHONWARNINGS": "error",
        }
        for name, text in FILES.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        (folder / "shop/__init__.py").touch()
        (folder / "shop/migrations/__init__.py").touch()
        (folder / "alembic.ini").write_text(ALEMBIC_INI)
        (folder / "revisions/script.py.mako").write_text("")
        (folder / "manage.py").write_text(MANAGE)
        self.configure("")

    def configure(self, more: str) -> None:
        """Write Django's settings: the page's, those of this place, and more."""
        (self._folder / "settings.py").write_text(FILES["settings.py"] + DATABASES + more)

    def run(self, line: str) -> None:
        """Do what a line says."""
        done = self.attempt(line)
        assert done.returncode == 0, (line, done.stdout, done.stderr)

    def attempt(self, line: str) -> subprocess.CompletedProcess[str]:
        """What becomes of a line."""
        command, _, file = line.partition(" > ")
        words = [
            word.replace("$DATABASE_URL", self.settings["DATABASE_URL"]) for word in shlex.split(command, comments=True)
        ]
        match words:
            case ["python", *rest]:
                words = [sys.executable, *rest]
            case ["alembic", *rest]:
                words = [sys.executable, "-m", "alembic", *rest]
            case ["psql", *rest]:
                words = [str(self._programs / "psql"), *rest]
        done = subprocess.run(
            words,
            cwd=self._folder,
            env={**os.environ, **self.settings},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if file:
            (self._folder / file.partition("#")[0].strip()).write_text(done.stdout)
        return done

    def version(self, name: str = "public", ladder: Ladder = OUTBOX) -> int:
        """What is there now."""
        with psycopg.connect(self._database) as connection:
            return Versions(ladder).version(connection, name)

    def execute(self, script: str) -> None:
        """Say it to the database."""
        with psycopg.connect(self._database) as connection:
            connection.execute(script.encode())


@pytest.fixture
def reader(bare_database: str, tmp_path: Path) -> Iterator[Reader]:
    """Its database has no outbox."""
    with Sandbox(postgres_account()) as sandbox:
        yield Reader(tmp_path, bare_database, postgres_programs(sandbox))


def test_relay_migrate_goes_where_the_page_says(reader: Reader) -> None:
    """Listed, up, to another version, and up again."""
    versions = []
    for line in BY_RELAY.splitlines():
        reader.run(line)
        versions.append(reader.version())
    assert versions == [0, schema.newest(), 4, schema.newest()]


def test_the_sql_goes_through_psql(reader: Reader) -> None:
    """From nothing to one version, and on to the next."""
    for line in AS_SQL.splitlines():
        reader.run(line)
    assert reader.version() == 5
    reader.run('psql --set ON_ERROR_STOP=1 --file back-to-4.sql "$DATABASE_URL"')
    assert reader.version() == 4


def test_the_refusal_is_the_one_that_is_shown(reader: Reader) -> None:
    """Word by word."""
    shown = re.findall(r"^    ((?:ERROR|HINT):  .*)$", PAGE, re.MULTILINE)
    for line in AS_SQL.splitlines():
        reader.run(line)
    said = reader.attempt('psql --set ON_ERROR_STOP=1 --file outbox-4.sql "$DATABASE_URL"').stderr
    assert len(shown) == 2
    assert all(sentence in said for sentence in shown), said


def test_the_revisions_make_an_outbox_and_leave_it_alone(reader: Reader) -> None:
    """In public and in another schema; the way back is the one that they say."""
    for line in BY_ALEMBIC.splitlines():
        reader.run(line)
    assert (reader.version(), reader.version("events")) == (5, 5)
    reader.run("alembic downgrade base")
    assert (reader.version(), reader.version("events")) == (0, 0)
    reader.run('psql --command "drop table alembic_version" "$DATABASE_URL"')
    reader.run('psql --set ON_ERROR_STOP=1 --file outbox-by-alembic.sql "$DATABASE_URL"')
    assert (reader.version(), reader.version("events")) == (5, 5)


def test_django_makes_an_outbox(reader: Reader) -> None:
    """With the router of the page, and in the schema that a migration before it makes."""
    for line in BY_DJANGO.splitlines():
        reader.run(line)
    assert reader.version() == schema.newest()
    reader.run("python manage.py migrate outbox zero")

    reader.configure(
        'DATABASE_ROUTERS = ["routers.OutboxRouter"]\nOUTBOX_SCHEMA = "events"\nINSTALLED_APPS += ["shop"]\n'
    )
    reader.run("python manage.py migrate")
    assert (reader.version(), reader.version("events")) == (0, schema.newest())


def test_the_inbox_goes_where_the_page_says(reader: Reader) -> None:
    """Listed, up, away, and up again through psql; whoever works on it can be given what the page gives."""
    versions = []
    for line in OF_INBOX.splitlines():
        reader.run(line)
        versions.append(reader.version(ladder=INBOX))
    assert versions == [0, INBOX.newest(), 0, 0, INBOX.newest()]
    assert reader.version() == 0

    (granted,) = re.findall(r"^```sql\n(grant .*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    reader.execute(f"create role shop_consumers; {granted} drop owned by shop_consumers; drop role shop_consumers")
