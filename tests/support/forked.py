"""Processes that begin with their imports done: forks of one that did them once a session.

Half a second of every command is its imports. All else is a process's own: its environment, folder, output and end.
"""

import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from signal import SIGKILL
from typing import NamedTuple, Self, TextIO, TypeAlias

_FORKS = get_context("forkserver")
_FORKS.set_forkserver_preload(
    [
        __name__,
        "pytest.__main__",
        "relay.cli.main",
        "consumers.cli.main",
        "django.core.management",
        "django.db.backends.postgresql.base",
    ]
)
# Where a stream of a process leads: a file, or the end of a pipe.
_End: TypeAlias = "Path | Connection[bytes, bytes]"


class _Start(NamedTuple):
    program: str
    words: list[str]
    env: Mapping[str, str]
    cwd: Path
    strict: bool


class Forked:
    """A process as `subprocess.Popen` has one, of which its output is read here, or goes to the file `log`.

    It is `module:function`, with these words as its sys.argv; `strict` is Python's `-W error`.
    """

    def __init__(  # noqa: PLR0913 -- as subprocess.Popen
        self,
        program: str,
        words: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        stdin: Path = Path(os.devnull),
        log: Path | None = None,
        strict: bool = False,
    ) -> None:
        self.args = list(words)
        self.stdout: TextIO | None = None
        self.stderr: TextIO | None = None
        ends: list[_End] = [stdin]
        pipes = []
        if log is None:
            pipes = [_FORKS.Pipe(duplex=False) for _ in range(2)]
            self.stdout, self.stderr = (os.fdopen(os.dup(ours.fileno()), encoding="utf-8") for ours, _ in pipes)
            ends += [theirs for _, theirs in pipes]
        else:
            log.touch()
            ends += [log, log]
        start = _Start(program, list(words), dict(env), cwd, strict)
        # It ends with the tests, also where a test forgets it.
        self._process = _FORKS.Process(target=_become, args=(start, ends), daemon=True)
        self._process.start()
        for pair in pipes:
            for end in pair:
                end.close()
        assert self._process.pid
        self.pid: int = self._process.pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """How it ended, or None while it runs."""
        if self.returncode is None:
            self.returncode = self._process.exitcode
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """How it ends. Raises subprocess.TimeoutExpired where it does not."""
        self._process.join(timeout)
        if (code := self.poll()) is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        """Unless it has ended."""
        if self.poll() is None:
            # It may end just now.
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """End it without a word."""
        self.send_signal(SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """What it still says until its end. Raises subprocess.TimeoutExpired, and kills it, where it does not end."""
        with ThreadPoolExecutor(2) as readers:
            said = [stream and readers.submit(stream.read) for stream in (self.stdout, self.stderr)]
            try:
                self.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()
                raise
        out, err = (each.result() if each else "" for each in said)
        return out, err

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind:
            self.kill()
        self.wait()
        for stream in (self.stdout, self.stderr):
            if stream:
                stream.close()


Running: TypeAlias = "Forked | subprocess.Popen[str]"


def run(  # noqa: PLR0913 -- as subprocess.run
    program: str,
    words: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path,
    stdin: str | None = None,
    timeout: float,
    strict: bool = False,
) -> "subprocess.CompletedProcess[str]":
    """Run such a process to its end."""
    with tempfile.TemporaryDirectory() as kept:
        given = Path(kept, "stdin")
        given.write_text(stdin or "", encoding="utf-8")
        with Forked(program, words, env=env, cwd=cwd, stdin=given, strict=strict) as process:
            stdout, stderr = process.communicate(timeout)
    return subprocess.CompletedProcess(list(words), process.wait(), stdout, stderr)


def _become(start: _Start, ends: Sequence[_End]) -> None:
    """Be the process that the system would have started, from here on."""
    for number, (end, mode) in enumerate(zip(ends, ("rb", "ab", "ab"), strict=True)):
        with end.open(mode) if isinstance(end, Path) else end as opened:
            os.dup2(opened.fileno(), number)
    sys.stdin, sys.stdout = open(0, encoding="utf-8", closefd=False), open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 -- for as long as the process lives
    # As Python has it: what is said of a mistake is written at once, whatever is in it.
    sys.stderr = open(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115 -- the same
    os.environ.clear()
    os.environ.update(start.env)
    os.chdir(start.cwd)
    sys.path[:0] = [str(start.cwd), *start.env["PYTHONPATH"].split(os.pathsep)]
    sys.argv = start.words
    if start.strict:
        warnings.simplefilter("error")
    module, _, function = start.program.partition(":")
    sys.exit(getattr(import_module(module), function)())
