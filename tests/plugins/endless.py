"""Ends a process whose test does not end being torn down: no run hangs for ever.

The timeout of pytest ends with a test's failure. What hangs behind that is ended with the process: its traceback is
printed, the test is told to have crashed, and another process runs what is left.
"""

import faulthandler
import os
import sys
from collections.abc import Generator
from typing import Any

import pytest

# How long a test may be torn down.
SECONDS = 100.0
_STDERR = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """Keep where errors go before a test's are caught."""
    config.stash[_STDERR] = os.dup(sys.__stderr__.fileno()) if sys.__stderr__ else 2


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    """Count the seconds; not while somebody debugs."""
    if item.config.getoption("usepdb"):
        return (yield)
    faulthandler.dump_traceback_later(SECONDS, exit=True, file=item.config.stash[_STDERR])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
