"""Owners of stacks that the tests may kill, and ways to see what is left behind."""

import contextlib
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

import psutil

from tests.support.waiting import until


def processes_about(folder: Path) -> list[psutil.Process]:
    """The live processes that work in this folder, or were told of it."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            words = [process.cwd(), *process.cmdline(), process.environ().get("TMPDIR", "")]
            if any(str(folder) in word for word in words):
                found.append(process)
    return found


@dataclass
class Owner:
    """A process that owns a stack, in a temporary folder of its own."""

    process: subprocess.Popen[bytes]
    temporary: Path

    @property
    def output(self) -> IO[bytes]:
        """What it prints."""
        assert self.process.stdout is not None
        return self.process.stdout

    def line(self) -> str:
        """The next line that it prints."""
        line = self.output.readline().decode().rstrip("\n")
        assert line, f"the owner ended with code {self.process.wait()}"
        return line

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def folders(self) -> list[Path]:
        """The sandboxes that exist."""
        return list(self.temporary.iterdir())

    def leftovers(self) -> list[str]:
        """Every server and file of its stack."""
        processes = [str(process) for process in processes_about(self.temporary)]
        return processes + [str(path) for path in self.folders()]

    def servers(self) -> list[psutil.Process]:
        """The processes of its stack, the reaper included."""
        return [found for found in processes_about(self.temporary) if found.pid != self.process.pid]

    def wait_until_nothing_is_left(self) -> None:
        """Wait until all of its servers have ended and all of its files are gone."""
        until(lambda: not self.folders(), f"{self.folders()} is gone")
        until(lambda: not self.leftovers(), f"none of {self.leftovers()} is left")


class StartOwner(Protocol):
    """Starts a Python program that owns a stack."""

    def __call__(self, program: str) -> Owner:
        """Start it."""
