"""What the embedded servers have in common: a process that is started, answers, and is stopped."""

import shlex
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from relay.dev.account import Account
from relay.dev.sandbox import Job, Sandbox
from relay.errors import DevError

START_SECONDS = 60.0
STOP_SECONDS = 30.0
POLL_SECONDS = 0.005
PORT_ATTEMPTS = 10
LOG_LINES = 20

# The servers read nothing of the caller's environment: PGDATA, LC_ALL and TZ would change them.
BARE_ENVIRONMENT: Mapping[str, str] = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}


class EmbeddedServer(ABC):
    """A server in a sandbox, on a free port of 127.0.0.1 that it keeps when started again.

    `begin()` returns at once and `ready()` waits until the server answers, so that several start
    side by side; `start()` is the two of them.
    """

    name: ClassVar[str]
    end_with: ClassVar[signal.Signals] = signal.SIGTERM
    env: ClassVar[Mapping[str, str] | None] = BARE_ENVIRONMENT
    account: Account | None = None
    cwd: Path | None = None

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.port = 0
        self.log = sandbox.folder / f"{self.name.lower()}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._launched: Sequence[str | Path] = ()
        self._log_start = 0
        self._port_is_known = False

    @property
    @abstractmethod
    def url(self) -> str:
        """How a client reaches the server, its password included."""

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        return self._running_process().pid

    @property
    def running(self) -> bool:
        """Whether the server's process is alive."""
        return self._process is not None and self.sandbox.code(self._process) is None

    def start(self) -> None:
        """Start the server and wait until it answers."""
        self.begin()
        self.ready()

    def begin(self) -> None:
        """Start the server without waiting for it."""
        if self.running:
            raise DevError(f"{self.name} runs already, as process {self.pid}. Stop it first.")
        if self._process is not None:
            self._forget_process()  # it ended by itself
        if not self._port_is_known:
            self.port = self._choose_port()
        self._launch(self._command())

    def ready(self) -> None:
        """Wait until the server answers; on another port if somebody took the first one."""
        deadline = time.monotonic() + START_SECONDS
        attempts = PORT_ATTEMPTS
        while not self._answers():
            code = self.sandbox.code(self._running_process())
            if code is not None:
                attempts -= 1
                if self._port_is_known or not attempts or not self._port_was_taken():
                    raise self._failure(f"the process ended with code {code}")
                self.begin()
            if time.monotonic() > deadline:
                raise self._failure(f"it did not answer within {START_SECONDS:.0f} s")
            time.sleep(POLL_SECONDS)
        self._port_is_known = True

    def stop(self) -> None:
        """Stop the server; its data and its port stay for the next start."""
        self._end(self.end_with)

    def restart(self) -> None:
        """Stop the server and start it again on the same port."""
        self.stop()
        self.start()

    def log_tail(self) -> str:
        """The last lines that the server logged since it was last started."""
        return "\n".join(self._log_text().splitlines()[-LOG_LINES:])

    @abstractmethod
    def _command(self) -> Sequence[str | Path]:
        """What starts the server on `self.port`."""

    @abstractmethod
    def _answers(self) -> bool:
        """Whether this very process serves clients by now; another's server must not count."""

    def _choose_port(self) -> int:
        """A port that is free now; it may be taken before the server gets to it."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        return port

    def _launch(self, command: Sequence[str | Path]) -> None:
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        self._launched = command
        self._process = self.sandbox.spawn(Job(command, self.log, self.end_with, self.account, self.cwd, self.env))

    def _end(self, number: signal.Signals) -> None:
        process = self._running_process()
        process.send_signal(number)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._forget_process()

    def _forget_process(self) -> None:
        self.sandbox.forget(self._running_process())
        self._process = None

    def _running_process(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise DevError(f"{self.name} is not running. Start it first.")
        return self._process

    def _port_was_taken(self) -> bool:
        return "ddress already in use" in self._log_text()

    def _log_text(self) -> str:
        return self.log.read_bytes()[self._log_start :].decode(errors="replace")

    def _failure(self, what: str) -> DevError:
        command = shlex.join(map(str, self._launched))
        log = self.log_tail() or "(nothing)"
        return DevError(
            f"{self.name} did not start: {what}.\nCommand: {command}\nThe last that it said:\n{log}\n{self._advice()}"
        )

    def _advice(self) -> str:
        return (
            "If the machine lacks disk space or memory, free some; else use a server of your own: "
            "DATABASE_URL and REDIS_URL, for tests TEST_DATABASE_URL and TEST_REDIS_URL."
        )
