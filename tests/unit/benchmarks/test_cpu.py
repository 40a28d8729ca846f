"""The CPU of processes is counted whether they run or have ended."""

import os
import subprocess
import sys

import psutil
import pytest

from benchmarks.cpu import used_by_all

TICK = 0.011  # seconds
BUSY = "import time\nwhile time.process_time() < 0.2: pass\nprint(flush=True)\ninput()"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell of those that have ended")
def test_a_child_counts_while_it_runs_and_when_it_has_ended() -> None:
    """A backend that ends with its connection has cost what it has cost."""
    parent = psutil.Process(os.getpid())
    before = used_by_all(parent)
    child = subprocess.Popen([sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout
    child.stdout.readline()

    running = used_by_all(parent) - before
    child.communicate(b"\n")
    ended = used_by_all(parent) - before

    # Both are differences of sums, to a tick of the kernel's clock.
    assert 0.15 < running <= ended + TICK
    assert ended < 2 * running
