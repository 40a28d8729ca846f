"""The command line as a user has it: a process with an environment."""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
SECONDS = 60.0


class Commands:
    """Runs `python -m relay` in an environment of its own: nothing of the caller's settings reaches it."""

    def __init__(self, settings: Mapping[str, str], folder: Path) -> None:
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("RELAY_", "PUBSUB_", "GOOGLE_"))
        }
        kept.pop("DATABASE_URL", None)
        self.settings = dict(settings)
        self._base = {**kept, "PYTHONPATH": str(ROOT)}
        # Elsewhere than the repository: a developer's .env must not reach the tests.
        self._folder = folder

    def __call__(self, *arguments: str, stdin: str | None = None, **settings: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; `stdin` is what another program would pipe to it."""
        return subprocess.run(
            self._command(arguments),
            env=self._environment(settings),
            cwd=self._folder,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    @contextmanager
    def background(self, *arguments: str, **settings: str) -> Iterator[subprocess.Popen[str]]:
        """Start a command, and kill it at the end of the block if it still runs."""
        with subprocess.Popen(
            self._command(arguments),
            env=self._environment(settings),
            cwd=self._folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()
                process.communicate()

    @staticmethod
    def _command(arguments: tuple[str, ...]) -> list[str]:
        return [sys.executable, "-m", "relay", *arguments]

    def _environment(self, settings: Mapping[str, str]) -> dict[str, str]:
        return {**self._base, **self.settings, **settings}


def terminate(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Ask a process to stop; answer with its exit code and what it logged."""
    process.send_signal(signal.SIGTERM)
    _, log = process.communicate(timeout=SECONDS)
    return process.returncode, log


def exported(servers: subprocess.Popen[str]) -> dict[str, str]:
    """The variables that `relay dev` prints, once it says that it is ready."""
    variables: dict[str, str] = {}
    assert servers.stdout
    for line in servers.stdout:
        if line.startswith("# Ready"):
            return variables
        if line.startswith("export "):
            name, value = line.removeprefix("export ").split("=", 1)
            (variables[name],) = shlex.split(value)
    raise AssertionError(f"relay dev ended with {servers.wait()}")
