"""A temporary folder with processes in it, all gone when their owner closes it or dies."""

import os
import signal
import subprocess
import sys
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from relay.dev import reaper
from relay.dev.account import Account, Identity, temporary_parent
from relay.errors import DevError

# The process becomes its server only when told to; its owner's death before that ends it.
GATE = ("/bin/sh", "-c", 'read -r go && exec "$@" </dev/null', "sh")


@dataclass(frozen=True)
class Job:
    """A process to start: what it runs, where its output goes, how the reaper ends it."""

    command: Sequence[str | Path]
    log: Path
    end_with: signal.Signals
    account: Account | None = None
    cwd: Path | None = None
    env: Mapping[str, str] | None = None


class Sandbox:
    """A temporary folder and the processes started in it.

    The reaper ends the processes and removes the folder when the sandbox is closed and when the
    owner dies of anything, `kill -9` included. There is no moment at which it would miss one: it
    makes the folder itself, and a process waits at a gate until the reaper has been told of it.
    """

    def __init__(self, account: Account | None = None) -> None:
        self.account = account
        self._owner = os.getpid()
        self._processes: dict[subprocess.Popen[bytes], signal.Signals] = {}
        self._reaper = subprocess.Popen(
            [sys.executable, "-I", "-S", reaper.__file__, str(temporary_parent(account))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
        self._forget_in_forks()
        with _pipe(self._reaper.stdout) as answer:
            folder = answer.readline().decode().rstrip("\n")
        if not folder:
            self._abandon()
        self.folder = Path(folder)
        if account is not None:
            # The account passes through to what is its own; it cannot list the folder.
            self.folder.chmod(0o711)

    def spawn(self, job: Job) -> subprocess.Popen[bytes]:
        """Start a process in a session of its own, which a Ctrl-C in the terminal does not reach."""
        identity: Identity = job.account.identity if job.account is not None else {}
        job.log.touch(mode=0o600)
        with job.log.open("ab") as output, self._sign_of_life() as alive:
            process = subprocess.Popen(
                [*GATE, *job.command],
                **identity,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=job.cwd or self.folder,
                env=job.env,
                pass_fds=(alive,),
                start_new_session=True,
            )
        self._processes[process] = job.end_with
        with _pipe(process.stdin) as gate:
            self._order(f"+ {process.pid} {job.end_with.value}")
            gate.write(b"go\n")
        return process

    def code(self, process: subprocess.Popen[bytes]) -> int | None:
        """How the process ended, or None while it runs."""
        code = process.poll()
        if code is not None and os.getpid() == self._owner:
            self.forget(process)
        return code

    def forget(self, process: subprocess.Popen[bytes]) -> None:
        """Take a process that has ended out of the reaper's hands: its number may be anybody's from now on."""
        # Once only: by the second time, the number may be that of a process of ours.
        if self._processes.pop(process, None) is not None:
            self._order(f"- {process.pid}")

    def close(self) -> None:
        """End every process, remove the folder; returns when both are gone."""
        if os.getpid() != self._owner:
            return  # a fork of the owner owns nothing
        with _pipe(self._reaper.stdin):
            try:
                self._order("end")
            except DevError:
                self._replace_reaper()
        # First the reaper: the numbers that it signals stay those of our processes until we have looked at them.
        self._reaper.wait()
        for process in self._processes:
            process.wait()
        self._processes.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @contextmanager
    def _sign_of_life(self) -> Iterator[int]:
        """The file descriptor by which the reaper knows that a process lives."""
        try:
            alive = os.open(self.folder / reaper.ALIVE, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:  # the reaper does not read it any more
            raise self._reaper_is_gone() from error
        try:
            yield alive
        finally:
            os.close(alive)

    def _order(self, line: str) -> None:
        try:
            os.write(_pipe(self._reaper.stdin).fileno(), f"{line}\n".encode())
        except BrokenPipeError as error:
            raise self._reaper_is_gone() from error

    def _reaper_is_gone(self) -> DevError:
        return DevError(
            f"The process {self._reaper.pid} that cleans up after the servers of {self.folder} "
            "was killed. Start the stack again, and leave that process alone."
        )

    def _replace_reaper(self) -> None:
        """Do the work of the reaper, which somebody has killed."""
        alive = os.open(self.folder / reaper.ALIVE, os.O_RDONLY | os.O_NONBLOCK)
        reaper.end({process.pid: end.value for process, end in self._processes.items()}, alive)
        os.close(alive)
        reaper.remove(self.folder)

    def _abandon(self) -> None:
        _pipe(self._reaper.stdin).close()
        code = self._reaper.wait()
        raise DevError(
            f"No temporary folder could be made: {sys.executable} {reaper.__file__} ended with "
            f"code {code}. Check that {temporary_parent(self.account)} is writable and has space, "
            "or set TMPDIR to a folder that is."
        )

    def _forget_in_forks(self) -> None:
        """Close the pipe in forks of this process: a copy of it would hide the owner's death."""
        pipe = weakref.ref(_pipe(self._reaper.stdin))

        def close() -> None:
            inherited = pipe()
            if inherited is not None:
                inherited.close()

        os.register_at_fork(after_in_child=close)


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    if stream is None:
        raise AssertionError("Popen was called without this pipe")
    return stream
