"""Signals, and the wish to stop. Whatever ends a process is tried on a process of its own."""

import asyncio
import faulthandler
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from relay.kernel.shutdown import Shutdown
from tests.support.commands import ROOT
from tests.support.waiting import until

PROGRAM = """
import asyncio, os, signal, sys, threading, time
from relay.kernel.shutdown import Shutdown

async def main():
    shutdown = Shutdown()
    with shutdown.listening({last_resort}):
        print("listening", flush=True)
        {body}

asyncio.run(main())
"""
FOREVER = "await asyncio.Event().wait()"
BLOCKED = "time.sleep(600)"
SECONDS = 30.0


@contextmanager
def started(body: str, last_resort: float = 600) -> Iterator[subprocess.Popen[str]]:
    """A process that listens to signals and then does something."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(body=body, last_resort=last_resort)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == "listening\n"
            yield process
        finally:
            process.kill()


def _is_gone_after(process: subprocess.Popen[str], number: signal.Signals) -> bool:
    process.send_signal(number)
    return process.poll() is not None


def test_the_first_reason_stays() -> None:
    """Set once, never cleared."""
    shutdown = Shutdown()
    assert not shutdown.stopping.is_set()

    shutdown.request("SIGTERM")
    shutdown.request("another")

    assert shutdown.stopping.is_set()
    assert shutdown.reason == "SIGTERM"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_asks_for_an_orderly_end(number: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    """Either of the two, and the reason is its name."""
    watched: list[float] = []
    monkeypatch.setattr(faulthandler, "dump_traceback_later", lambda seconds, **_: watched.append(seconds))
    shutdown = Shutdown()
    with shutdown.listening(29.5):
        os.kill(os.getpid(), number)
        async with asyncio.timeout(10):
            await shutdown.stopping.wait()

    assert shutdown.reason == number.name
    assert watched == [29.5]


async def test_signals_are_given_back() -> None:
    """Afterwards they mean what they mean to Python."""
    with Shutdown().listening(1):
        assert signal.getsignal(signal.SIGTERM) not in (signal.SIG_DFL, None)

    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) == signal.default_int_handler


@pytest.mark.parametrize("body", [FOREVER, BLOCKED], ids=["waiting", "blocked"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_the_process_at_once(body: str, number: signal.Signals) -> None:
    """With 128 and its number, also while the event loop is blocked and serves nobody."""
    with started(body) as process:
        # The first may not have been taken when the second comes, and two that wait are one.
        until(lambda: _is_gone_after(process, number), "the process ends", SECONDS)

        assert process.returncode == 128 + number


def test_the_first_signal_after_another_reason_is_not_a_second() -> None:
    """A process that ends because a loop died gets its orderly end when the platform stops it meanwhile."""
    body = 'shutdown.request("a loop died"); os.kill(os.getpid(), signal.SIGTERM); await asyncio.sleep(0)'

    with started(body) as process:
        assert process.wait(SECONDS) == 0


@pytest.mark.parametrize(
    "body",
    [
        "time.sleep(600)",
        "await asyncio.shield(asyncio.to_thread(time.sleep, 600))",
        "threading.Thread(target=time.sleep, args=(600,)).start()",
    ],
    ids=["blocked event loop", "thread of the event loop", "thread"],
)
def test_a_process_that_cannot_end_is_ended(body: str) -> None:
    """At the last resort it says where it hangs and exits with 1, instead of being killed without a word."""
    with started(f'shutdown.request("the end"); {body}', last_resort=0.2) as process:
        _, said = process.communicate(timeout=SECONDS)

    assert process.returncode == 1
    assert "Timeout" in said
    assert "most recent call first" in said


def test_a_process_that_ends_in_time_is_left_alone() -> None:
    """The last resort does not outlive it."""
    with started('shutdown.request("the end")', last_resort=20) as process:
        _, said = process.communicate(timeout=SECONDS)

    assert (process.returncode, said) == (0, "")
