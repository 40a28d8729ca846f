"""Ends the servers of a sandbox and removes its folder, once its owner asks or is gone.

Runs as a process of its own, by path and on the standard library alone, in its own session, so that
a Ctrl-C in the terminal does not reach it. It creates the folder in the parent folder named by its
argument, writes its path to stdout, and reads orders from stdin until `end` or until the owner's
death closes the pipe:

    + PID SIGNAL      end this process, the leader of its group, with this signal
    - PID             it has ended, its number may belong to others now
    end               the owner is done

Every process of the sandbox inherits the writing end of the pipe `alive` in the folder, and so do
its children. Nobody writes; the reader meets the end of the file once the last of them is gone. A
process id would not tell: it stays until its parent has looked, and children have their own.
"""

import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

ALIVE = "alive"

# Postgres itself kills what is left of its children 5 s after an immediate shutdown.
GRACE_SECONDS = 8.0
KILL_SECONDS = 2.0
REMOVE_SECONDS = 10.0
POLL_SECONDS = 0.005


def main(parent: str) -> None:
    """Create the folder, follow the orders, clean up."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    folder = Path(tempfile.mkdtemp(prefix="outbox-relay-", dir=parent))
    alive = open_pipe(folder / ALIVE)
    watched: dict[int, int] = {}
    try:
        sys.stdout.write(f"{folder}\n")
        sys.stdout.flush()
        watched = follow(sys.stdin)
    finally:
        end(watched, alive)
        remove(folder)


def open_pipe(path: Path) -> int:
    """Make a pipe that others find by its path; its reading end."""
    os.mkfifo(path, 0o600)
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK)


def follow(orders: Iterable[str]) -> dict[int, int]:
    """Read orders to their end; the processes left to end, each with its signal."""
    watched: dict[int, int] = {}
    for order in orders:
        match order.split():
            case ["+", pid, number]:
                watched[int(pid)] = int(number)
            case ["-", pid]:
                watched.pop(int(pid), None)
            case _:
                break
    return watched


def end(watched: dict[int, int], alive: int) -> None:
    """Ask every process to end; kill the groups of those that have not after the grace period."""
    # macOS denies access to a process group that is dead.
    gone = contextlib.suppress(ProcessLookupError, PermissionError)
    for pid, number in watched.items():
        with gone:
            # Not its group: initdb sees to its children, which would leave shared memory behind.
            os.kill(pid, number)
            os.kill(pid, signal.SIGCONT)  # a stopped process would sleep through the first signal
    if wait(alive, GRACE_SECONDS):
        return
    for pid in watched:
        with gone:
            os.killpg(pid, signal.SIGKILL)
    wait(alive, KILL_SECONDS)


def wait(alive: int, seconds: float) -> bool:
    """Wait until no process of the sandbox is left; false if the time was up first."""
    deadline = time.monotonic() + seconds
    while is_held(alive):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def is_held(pipe: int) -> bool:
    """Whether some process holds the writing end of this pipe."""
    try:
        return os.read(pipe, 1) != b""
    except BlockingIOError:
        return True


def remove(folder: Path) -> None:
    """Remove the folder, again if a dying process still wrote into it."""
    deadline = time.monotonic() + REMOVE_SECONDS
    while folder.exists() and time.monotonic() < deadline:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1])
