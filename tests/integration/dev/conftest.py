"""Owners of stacks that the tests may kill."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.dev.owners import Owner, StartOwner

CHECKOUT = Path(__file__).parents[3]


@pytest.fixture
def open_folder() -> Iterator[Path]:
    # Not tmp_path: its parent is closed to the account that Postgres runs under for root.
    folder = Path(tempfile.mkdtemp(prefix="relay-test-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def start_owner(open_folder: Path) -> Iterator[StartOwner]:
    owners: list[Owner] = []

    def start(program: str) -> Owner:
        process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=CHECKOUT,
            env={**os.environ, "TMPDIR": str(open_folder)},
        )
        owners.append(Owner(process, open_folder))
        return owners[-1]

    yield start
    for owner in owners:
        owner.process.kill()
        with owner.process:
            pass
        owner.wait_until_nothing_is_left()
