"""What the demo shows: one line that moves on a terminal, plain lines elsewhere, a table at the end."""

import sys
import time
from collections.abc import Sequence

WIDTH = 34


class Screen:
    """Writes to stdout."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._terminal = sys.stdout.isatty()

    def say(self, line: str) -> None:
        """Write a line that stays."""
        clear = "\r\033[K" if self._terminal else ""
        print(f"{clear}{time.monotonic() - self._began:6.1f} s  {line}", flush=True)

    def progress(self, emitted: int, shipped: int, total: int) -> None:
        """Move the bar; elsewhere than on a terminal nothing moves."""
        if self._terminal:
            bar = ("#" * round(WIDTH * shipped / total)).ljust(WIDTH, ".")
            print(f"\r\033[K          [{bar}] {emitted} emitted, {shipped} shipped", end="", flush=True)

    def table(self, rows: Sequence[tuple[str, object, object, bool]]) -> None:
        """Write what was expected beside what was found."""
        wide = max(len(name) for name, *_ in rows)
        print(f"\n{'':{wide}}  {'expected':>9}  {'found':>9}")
        for name, expected, found, fine in rows:
            print(f"{name:{wide}}  {expected!s:>9}  {found!s:>9}  {'ok' if fine else 'WRONG'}")
        print(flush=True)
