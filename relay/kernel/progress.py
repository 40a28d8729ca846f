"""How far a command is that takes long."""

import sys
import time


class Progress:
    """Counts on stderr: in place on a terminal, as a line now and then elsewhere."""

    def __init__(self) -> None:
        self._in_place = sys.stderr.isatty()
        self._seconds = 0.1 if self._in_place else 10.0
        self._due = time.monotonic() + self._seconds

    def __call__(self, what: str, count: int) -> None:
        """Tell the count, unless one was told a moment ago."""
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + self._seconds
            self._show(f"{count:,} {what}")

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._in_place:
            self._show("")

    def _show(self, line: str) -> None:
        sys.stderr.write(f"\r\x1b[K{line}" if self._in_place else f"{line}\n")
        sys.stderr.flush()
