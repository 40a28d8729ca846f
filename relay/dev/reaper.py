"""Ends the servers of a sandbox and removes its folder, once its owner asks or is gone.

Runs as a process of its own, by path and on the standard library alone, in its own session, so that
a Ctrl-C in the terminal does not reach it. It creates the folder in the parent folder named by its
argument, writes its path to stdout, and reads orders from stdin until `end` or until the owner's
death closes the pipe:

    + GROUP SIGNAL    end this process group with this signal
    - GROUP           it has ended, its number may belong to others now
    end               the owner is done
"""

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

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
    groups: dict[int, int] = {}
    try:
        sys.stdout.write(f"{folder}\n")
        sys.stdout.flush()
        groups = follow(sys.stdin)
    finally:
        end(groups)
        remove(folder)


def follow(orders: Iterable[str]) -> dict[int, int]:
    """Read orders to their end; the process groups left to end, each with its signal."""
    groups: dict[int, int] = {}
    for order in orders:
        match order.split():
            case ["+", group, number]:
                groups[int(group)] = int(number)
            case ["-", group]:
                groups.pop(int(group), None)
            case _:
                break
    return groups


def end(groups: dict[int, int]) -> None:
    """Ask every group to end; kill those that have not after the grace period."""
    for group, number in groups.items():
        send(group, number)
        send(group, signal.SIGCONT)  # a stopped process would sleep through the first signal
    wait(groups, GRACE_SECONDS)
    for group in groups:
        send(group, signal.SIGKILL)
    wait(groups, KILL_SECONDS)


def wait(groups: Iterable[int], seconds: float) -> None:
    """Wait until no process of these groups is left, or until the time is up."""
    deadline = time.monotonic() + seconds
    while any(send(group, 0) for group in groups) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)


def send(group: int, number: int) -> bool:
    """Signal a process group; false if it is gone (macOS denies access to a dead one)."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def remove(folder: Path) -> None:
    """Remove the folder, again if a dying process still wrote into it."""
    deadline = time.monotonic() + REMOVE_SECONDS
    while folder.exists() and time.monotonic() < deadline:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1])
