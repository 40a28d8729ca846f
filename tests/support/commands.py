"""The command line as a user has it: a process with an environment."""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from relay.outbox.grants import Role
from tests.support import forked
from tests.support.environment import bare
from tests.support.roles_of_tests import Roles

ROOT = Path(__file__).parents[2]
SECONDS = 60.0
# As whom a command connects; None is the owner of the outbox.
ROLE_OF: dict[str, Role | None] = {
    "run": Role.RELAY,
    "tick": Role.RELAY,
    "doctor": Role.RELAY,
    "topics": Role.RELAY,
    "forget": Role.RELAY,
    "failed": Role.RELAY,
    "failed list": Role.VIEWER,
    "failed show": Role.VIEWER,
    "status": Role.VIEWER,
    "runs": Role.VIEWER,
    "check": Role.VIEWER,
    "audit": Role.VIEWER,
    "emit": Role.EMITTER,
    "migrate": None,
    "grants": None,
    "adopt": None,
    "archive": None,
    "config": None,
    "subscribers": None,
    "dev": None,
    "reconcile": None,
}


class Commands:
    """Runs `python -m relay`, or another program, in an environment of its own: no setting of the caller's reaches it.

    With `roles`, each command connects as the role that it is for, unless its call names a DATABASE_URL itself.
    """

    def __init__(
        self, settings: Mapping[str, str], folder: Path, roles: Roles | None = None, program: str = "relay"
    ) -> None:
        self.settings = dict(settings)
        self._base = {**bare(os.environ), "PYTHONPATH": str(ROOT)}
        # Elsewhere than the repository: a developer's .env must not reach the tests.
        self._folder = folder
        self._roles = roles
        self._program = program

    def __call__(self, *arguments: str, stdin: str | None = None, **settings: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; `stdin` is what another program would pipe to it."""
        environment = self._environment(settings, arguments)
        if _is_this_code(environment):
            return forked.run(
                f"{self._program}.__main__:main",
                [self._program, *arguments],
                env=environment,
                cwd=self._folder,
                stdin=stdin,
                timeout=SECONDS,
            )
        return subprocess.run(
            self._command(arguments),
            env=environment,
            cwd=self._folder,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    @contextmanager
    def background(self, *arguments: str, **settings: str) -> Iterator[forked.Running]:
        """Start a command, and kill it at the end of the block if it still runs."""
        environment = self._environment(settings, arguments)
        if not _is_this_code(environment):
            with self.from_nothing(*arguments, **settings) as alone:
                yield alone
            return
        with forked.Forked(
            f"{self._program}.__main__:main", [self._program, *arguments], env=environment, cwd=self._folder
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    @contextmanager
    def from_nothing(self, *arguments: str, **settings: str) -> Iterator[subprocess.Popen[str]]:
        """Like `background`, with an interpreter of its own: for what is about its start."""
        with subprocess.Popen(
            self._command(arguments),
            env=self._environment(settings, arguments),
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

    def _command(self, arguments: tuple[str, ...]) -> list[str]:
        return [sys.executable, "-m", self._program, *arguments]

    def _environment(self, settings: Mapping[str, str], arguments: tuple[str, ...] = ("run",)) -> dict[str, str]:
        return {**self._base, **self.settings, **self._as_its_role(arguments), **settings}

    def _as_its_role(self, arguments: tuple[str, ...]) -> dict[str, str]:
        url = self.settings.get("DATABASE_URL")
        if not (self._roles and url):
            return {}
        role = ROLE_OF.get(" ".join(arguments[:2])) or ROLE_OF[arguments[0]]
        return {"DATABASE_URL": self._roles.url(role, url)} if role else {}


def _is_this_code(environment: Mapping[str, str]) -> bool:
    """Other code has imports of its own."""
    return environment["PYTHONPATH"].split(os.pathsep)[0] == str(ROOT)


def terminate(process: forked.Running) -> tuple[int, str]:
    """Ask a process to stop; answer with its exit code and what it logged."""
    process.send_signal(signal.SIGTERM)
    _, log = process.communicate(timeout=SECONDS)
    return process.wait(), log


def exported(servers: forked.Running) -> dict[str, str]:
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
