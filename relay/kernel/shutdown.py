"""The wish to stop: SIGTERM or SIGINT once for an orderly end, twice for an immediate one."""

import asyncio
import faulthandler
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Shutdown:
    """Set once, never cleared."""

    def __init__(self) -> None:
        self.stopping = asyncio.Event()
        self.reason = ""
        self._signalled = False
        self._last_resort: float | None = None

    def request(self, reason: str) -> None:
        """Ask for an orderly end; the first reason stays."""
        if not self.stopping.is_set():
            self.reason = reason
            self.stopping.set()
            self._watch()

    @contextmanager
    def listening(self, last_resort: float) -> Iterator[None]:
        """Take the signals of this process, in the running event loop.

        `last_resort` seconds after the first request the process ends, whatever holds it: a thread, a blocked event
        loop, a task that ignores its cancellation. It then prints where it hangs, and exits 1.
        """
        self._last_resort = last_resort
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            # The event loop serves the first signal. The second, and the watch, must not depend on the event loop.
            loop.add_signal_handler(number, self.request, number.name)
            signal.signal(number, self._received)
        try:
            yield
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)

    def _received(self, number: int, _: FrameType | None) -> None:
        if self._signalled:
            # The way out for an operator who will not wait: the database rolls back what is open.
            os._exit(128 + number)
        self._signalled = True
        self._watch()

    def _watch(self) -> None:
        seconds, self._last_resort = self._last_resort, None
        if seconds is not None:
            # A thread below Python's own: neither the interpreter's lock nor its end holds it up.
            faulthandler.dump_traceback_later(seconds, exit=True)
