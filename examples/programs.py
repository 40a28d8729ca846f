"""What the examples share: a database that is ready, and programs that run beside this one."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

PATIENCE_SECONDS = 60.0


def prepared(database_url: str, example: str, **settings: str) -> dict[str, str]:
    """The outbox, the inbox and the example's own tables in one database; the environment of all programs."""
    for program in ("relay", "consumers"):
        command = [sys.executable, "-m", program, "migrate"]
        environment = {**os.environ, "DATABASE_URL": database_url}
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    return equipped(database_url, example, **settings)


def equipped(database_url: str, example: str, **settings: str) -> dict[str, str]:
    """The same, where the outbox and the inbox are there."""
    with psycopg.connect(database_url) as database:
        database.execute(Path(__file__).with_name(example).joinpath("tables.sql").read_bytes())
    return {**os.environ, "DATABASE_URL": database_url, "CONSUMERS_LOG_LEVEL": "error", **settings}


@contextmanager
def running(
    environment: dict[str, str], *program: str, fds: Collection[int] = ()
) -> Iterator["subprocess.Popen[bytes]"]:
    """A program beside this one, stopped the way a platform stops it."""
    with subprocess.Popen([sys.executable, "-m", *program], env=environment, pass_fds=fds) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)


@contextmanager
def served(environment: dict[str, str], application: str) -> Iterator[str]:
    """An application on a free port; it inherits the socket, so that nobody else gets the port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        options = ("--fd", str(listening.fileno()), "--log-level", "warning")
        with running(environment, "uvicorn", application, *options, fds=[listening.fileno()]):
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def waited(condition: Callable[[], bool]) -> bool:
    """Whether it holds, at last."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
