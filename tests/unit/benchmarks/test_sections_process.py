"""What is read of a process that is looked at from outside."""

import os
import sys

import pytest

from benchmarks.contest import ContestError
from benchmarks.running import Memory, Relay, memory_in, until

STATUS = "Name:\tpython\nVmPeak:\t  900000 kB\nVmHWM:\t  120000 kB\nVmRSS:\t  100000 kB\nThreads:\t7\n"


def test_resident_memory_is_told_in_megabytes_of_a_million() -> None:
    """The most, and what is held now."""
    assert memory_in(STATUS) == Memory(now=102.4, most=122.88)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_work_counts_as_cpu_seconds() -> None:
    """Of all threads of the process."""
    before = Relay(os.getpid()).cpu_seconds()
    sum(range(1_000_000))
    assert Relay(os.getpid()).cpu_seconds() > before


def test_what_never_comes_ends_a_measurement() -> None:
    """By name."""
    with pytest.raises(ContestError, match="in vain: a relay"):
        until(lambda: False, "a relay", 0.01, 0.001)
