"""A program that dies without a word and is started again, as on a platform."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from tests.support.commands import ROOT
from tests.support.forked import Forked


class Mortal:
    """One command of ours, such as `("consumers", "run", "shop:billing")`; what its processes say is in `log`."""

    def __init__(self, environment: Mapping[str, str], command: Sequence[str], log: Path) -> None:
        self._environment = {**environment, "PYTHONPATH": str(ROOT)}
        self._command = list(command)
        self._log = log
        self._process = self._start()

    @classmethod
    @contextmanager
    def running(cls, environment: Mapping[str, str], command: Sequence[str], log: Path) -> Iterator[Self]:
        """One that lives as long as the block."""
        program = cls(environment, command, log)
        try:
            yield program
        finally:
            program._end()

    @property
    def pid(self) -> int:
        """Of the process that runs now."""
        return self._process.pid

    @property
    def said(self) -> str:
        """The end of what it said, for whoever asks why."""
        return self._log.read_text()[-4000:]

    def die(self) -> None:
        """Be killed in the middle of whatever it does, and started again."""
        self._end()
        self._process = self._start()

    def _start(self) -> Forked:
        program, *_ = self._command
        return Forked(
            f"{program}.__main__:main", self._command, env=self._environment, cwd=self._log.parent, log=self._log
        )

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
