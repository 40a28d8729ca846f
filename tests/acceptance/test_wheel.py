"""What `pip install .` gives to a service: everything that is read at run time, and nothing of the tests."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from consumers.inbox.schema import INBOX
from tests.support.commands import ROOT
from tests.support.wheel import built_wheel

pytestmark = pytest.mark.slow("builds and installs the wheel")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the contents of the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    wheel = built_wheel(folder)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_every_file_of_the_packages_is_in_it(installed: Path) -> None:
    """SQL, migrations and type markers travel with the code."""
    written = {
        str(path.relative_to(ROOT))
        for package in ("relay", "consumers", "idempotency")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    packed = {str(path.relative_to(installed)) for path in installed.rglob("*") if path.is_file()}
    assert written <= packed
    roots = {name.split("/")[0].split("-")[0] for name in packed}
    assert roots == {"relay", "consumers", "idempotency", "outbox_relay"}


def test_the_inbox_finds_its_steps_and_its_statements_where_it_is_installed(installed: Path, tmp_path: Path) -> None:
    """As the code has them."""
    program = """
import consumers.inbox
from importlib.resources import files
from consumers.inbox.schema import INBOX
print(consumers.inbox.__file__)
print(*sorted(entry.name for entry in (files("consumers.inbox") / "sql").iterdir()))
print(*(each.name for each in INBOX.migrations()))
"""
    printed = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert printed.returncode == 0, printed.stderr
    home, statements, steps = printed.stdout.splitlines()
    assert home.startswith(str(installed))
    assert statements.split() == sorted(path.name for path in (ROOT / "consumers/inbox/sql").glob("*.sql"))
    assert steps.split() == [each.name for each in INBOX.migrations()]


def test_alembic_and_django_find_the_steps_where_it_is_installed(installed: Path, tmp_path: Path) -> None:
    """One migration of Django's for each, and the text of all."""
    program = f"""
import django, relay.alembic
from django.conf import settings
settings.configure(INSTALLED_APPS=["relay.django"], DATABASES={{}})
django.setup()
from django.db.migrations.loader import MigrationLoader
from relay.outbox import ladder, script
assert relay.alembic.__file__.startswith({str(installed)!r})
assert len(MigrationLoader(None).disk_migrations) == ladder.newest()
print(script.up("public", ladder.newest()))
"""
    printed = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert printed.returncode == 0, printed.stderr
    assert "create table outbox_events" in printed.stdout


def test_it_works_where_it_is_installed(installed: Path, tmp_path: Path) -> None:
    """The command finds its migrations without a checkout around it."""
    script = subprocess.run(
        [sys.executable, "-m", "relay", "migrate", "--sql"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert script.returncode == 0, script.stderr
    assert "create table outbox_events" in script.stdout
