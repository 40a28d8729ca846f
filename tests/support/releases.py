"""The release before this one: its schema, and its code out of the repository's history."""

import shutil
import subprocess
import tarfile
from functools import cache
from io import BytesIO
from pathlib import Path

import psycopg

from relay.outbox import schema
from tests.support.commands import ROOT

NEWEST = schema.newest()
# Code from before this version works on its own version alone.
FIRST_WITH_NEIGHBOURS = 5


class NoHistoryError(Exception):
    """There is no code of a release before this one; it says why."""


def previous_code(folder: Path) -> Path:
    """Put the package as it was before the newest migration into the folder. Raises NoHistoryError."""
    with tarfile.open(fileobj=BytesIO(_archive())) as archive:
        archive.extractall(folder, filter="data")
    return folder


@cache
def _archive() -> bytes:
    newest = f"relay/outbox/migrations/{NEWEST:04d}_{schema.migrations()[-1].name}.up.sql"
    if not (ROOT / ".git").exists():
        raise NoHistoryError(f"{ROOT} is no checkout")
    added = _git("log", "--diff-filter=A", "--format=%H", "--", newest).decode().split()
    if not added:
        raise NoHistoryError(f"{newest} is not committed")
    return _git("archive", "--format=tar", f"{added[-1]}^", "relay")


def _git(*arguments: str) -> bytes:
    git = shutil.which("git")
    if git is None:
        raise NoHistoryError("there is no git")
    done = subprocess.run([git, "-C", ROOT, *arguments], capture_output=True, check=False)
    if done.returncode != 0:
        raise NoHistoryError(f"git {arguments[0]}: {done.stderr.decode().strip()}")
    return done.stdout


def set_version(url: str, version: int) -> None:
    """Have the schema be of this version: by migrations, and beyond the newest by name alone."""
    with psycopg.connect(url) as connection:
        schema.migrate(connection, "public", min(version, NEWEST))
        for later in range(NEWEST + 1, version + 1):
            connection.execute(
                "insert into outbox_migrations (version, name) values (%s, 'of_a_later_release')", [later]
            )
