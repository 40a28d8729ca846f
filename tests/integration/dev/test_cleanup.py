"""However the owner of a stack ends, no server and no file is left."""

import os
import signal

import psutil
import psycopg
import pytest

from relay.dev import reaper
from relay.dev.sandbox import Sandbox
from relay.dev.stack import Part, Stack
from relay.errors import DevError
from tests.integration.dev.owners import Owner, StartOwner, processes_about
from tests.support.waiting import until

pytestmark = pytest.mark.slow("starts servers of its own again and again")

OWNER = """
import sys
from relay.dev.stack import Stack
with Stack.start() as stack:
    print(stack.database_url, flush=True)
    order = sys.stdin.readline().strip()
    if order == "raise":
        raise RuntimeError("as ordered")
"""

FORKING_OWNER = """
import os, sys, time
from relay.dev.stack import Part, Stack
with Stack.start([Part.POSTGRES, Part.REDIS]) as stack:
    child = os.fork()
    if child == 0:
        time.sleep(600)
    print(child, flush=True)
    sys.stdin.readline()
"""


def ready(owner: Owner) -> list[psutil.Process]:
    """The processes of the owner's stack, once it is up."""
    url = owner.line()
    processes = owner.servers()
    with psycopg.connect(url) as connection:
        row = connection.execute("select pid from pg_stat_activity where backend_type = 'checkpointer'").fetchone()
    assert row is not None
    assert row[0] in {process.pid for process in processes}
    return processes


def order(owner: Owner, words: str) -> None:
    """Let the owner go on."""
    assert owner.process.stdin is not None
    owner.process.stdin.write(f"{words}\n".encode())
    owner.process.stdin.flush()


@pytest.mark.parametrize(("words", "code"), [("exit", 0), ("raise", 1)])
def test_nothing_is_left_when_the_block_ends(start_owner: StartOwner, words: str, code: int) -> None:
    """When the owner has ended by itself, all is gone already."""
    owner = start_owner(OWNER)
    ready(owner)
    order(owner, words)
    assert owner.process.wait() == code
    assert owner.leftovers() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_when_a_signal_ends_the_owner(start_owner: StartOwner, number: signal.Signals) -> None:
    """Even an owner that cannot act any more takes its servers along."""
    owner = start_owner(OWNER)
    ready(owner)
    owner.send(number)
    assert owner.process.wait() == -number
    owner.wait_until_nothing_is_left()


@pytest.mark.parametrize(
    ("number", "sign"),
    [
        (signal.SIGKILL, reaper.ALIVE),
        (signal.SIGKILL, "postgres.log"),
        (signal.SIGKILL, "postgres/data/PG_VERSION"),
        (signal.SIGKILL, "postgres/data/postmaster.pid"),
        (signal.SIGINT, "postgres.log"),
        (signal.SIGINT, "postgres/data/postmaster.pid"),
    ],
)
def test_nothing_is_left_of_a_start_that_was_cut_short(
    start_owner: StartOwner, number: signal.Signals, sign: str
) -> None:
    """There is no moment of the start at which the owner's end leaves anything behind."""
    # Not at the folder's first sight: Python's own search for a temporary folder tries a file there.
    owner = start_owner(OWNER)
    until(lambda: any((folder / sign).exists() for folder in owner.folders()), f"{sign} is")
    owner.send(number)
    assert owner.process.wait() == -number
    owner.wait_until_nothing_is_left()


def test_a_ctrl_c_in_the_terminal_reaches_the_owner_alone(start_owner: StartOwner) -> None:
    """The terminal signals the owner's process group: no server may be in it."""
    owner = start_owner(OWNER)
    sessions = {os.getsid(process.pid) for process in ready(owner)}
    assert os.getsid(owner.process.pid) not in sessions


def test_a_hanging_server_ends_too(start_owner: StartOwner) -> None:
    """A stopped process would not notice a gentle signal."""
    owner = start_owner(OWNER)
    for process in ready(owner):
        if process.ppid() == owner.process.pid and "reaper.py" not in " ".join(process.cmdline()):
            process.suspend()
    owner.send(signal.SIGKILL)
    owner.process.wait()
    owner.wait_until_nothing_is_left()


@pytest.mark.parametrize("killed", [False, True])
def test_a_fork_of_the_owner_holds_nothing_back(start_owner: StartOwner, killed: bool) -> None:  # noqa: FBT001 - the two cases
    """A worker forked while the stack was up may outlive it."""
    owner = start_owner(FORKING_OWNER)
    child = psutil.Process(int(owner.line()))
    if killed:
        owner.send(signal.SIGKILL)
    else:
        order(owner, "exit")
    owner.process.wait()
    until(lambda: owner.folders() == [], "the folder is gone")
    assert child.is_running()
    child.kill()


def test_a_killed_reaper_is_replaced_by_its_owner() -> None:
    """Whoever kills the reaper gets an error later, and still no leftovers."""
    with Stack.start([Part.POSTGRES, Part.REDIS]) as stack:
        assert stack.redis is not None
        sandbox = stack.redis.sandbox
        sandbox._reaper.kill()
        sandbox._reaper.wait()
        with pytest.raises(DevError, match="was killed"):
            stack.redis.restart()
    assert not sandbox.folder.exists()
    assert processes_about(sandbox.folder) == []


def test_a_sandbox_is_closed_to_others() -> None:
    """Passwords and data are in it."""
    with Sandbox() as sandbox:
        assert sandbox.folder.stat().st_mode & 0o777 == 0o700
        assert sandbox.folder.stat().st_uid == os.geteuid()
