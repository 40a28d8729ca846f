"""The wish to stop: SIGTERM or SIGINT once for an orderly end, twice for an immediate one."""

import asyncio
import os
import signal

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Shutdown:
    """Set once, never cleared."""

    def __init__(self) -> None:
        self.stopping = asyncio.Event()
        self.reason = ""

    def request(self, reason: str) -> None:
        """Ask for an orderly end; the first reason stays."""
        if not self.stopping.is_set():
            self.reason = reason
            self.stopping.set()

    def listen(self) -> None:
        """Take the signals of this process, in the running event loop."""
        for number in _SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self._received, number)

    def _received(self, number: signal.Signals) -> None:
        if self.stopping.is_set():
            # The way out for an operator who will not wait: the database rolls back what is open.
            os._exit(128 + number)
        self.request(number.name)
