"""A project of somebody who emits: its files, and a run of its tests in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

SECONDS = 100.0

# What a service does: a change and the event that announces it, in one transaction.
SHOP = """
from relay import Event, emit, emit_async


def paid(number):
    return Event(event_type="order.paid", aggregate_type="order", aggregate_id=str(number), data={"number": number})


def pay(connection, number):
    emit(connection, paid(number))


async def pay_async(connection, number):
    await emit_async(connection, paid(number))
"""


class Project:
    """A folder with a service in it, and its tests."""

    def __init__(self, folder: Path, packages: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "TEST_", "PYTHON"))
        }
        self._environment = {**kept, "PYTHONPATH": str(packages), **environment}
        self.write("shop.py", SHOP)
        self.write("pytest.ini", "[pytest]\nfilterwarnings = error\n")

    def write(self, name: str, text: str) -> None:
        """Add a file."""
        (self.folder / name).write_text(dedent(text), encoding="utf-8")

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        """Begin to run its tests."""
        further = () if "no:asyncio" in arguments else ("-o", "asyncio_default_fixture_loop_scope=function")
        return subprocess.Popen(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *further, *arguments],
            cwd=self.folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: str) -> str:
        """Run its tests to their end, and answer with all that was said."""
        with self.start(*arguments) as running:
            try:
                said, _ = running.communicate(timeout=SECONDS)
            finally:
                running.kill()
        return said
