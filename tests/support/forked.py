"""Processes that begin with their imports done: forks of one that did them once a session.

Half a second of every command is its imports. All else is a process's own: its environment, folder, output and end.
"""

import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

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


class _Start(NamedTuple):
    program: str
    words: list[str]
    env: Mapping[str, str]
    cwd: Path
    strict: bool


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
    """Run `module:function` with these words as its sys.argv, to its end; `strict` is Python's `-W error`."""
    with tempfile.TemporaryDirectory() as kept:
        files = [Path(kept, name) for name in ("stdin", "stdout", "stderr")]
        for file in files:
            file.touch()
        files[0].write_text(stdin or "", encoding="utf-8")
        start = _Start(program, list(words), dict(env), cwd, strict)
        process = _FORKS.Process(target=_become, args=(start, files))
        process.start()
        process.join(timeout)
        code = process.exitcode
        if code is None:
            process.kill()
            process.join()
        process.close()
        _, stdout, stderr = (file.read_text(encoding="utf-8") for file in files)
    if code is None:
        raise subprocess.TimeoutExpired(list(words), timeout, stdout, stderr)
    return subprocess.CompletedProcess(list(words), code, stdout, stderr)


def _become(start: _Start, files: Sequence[Path]) -> None:
    """Be the process that the system would have started, from here on."""
    for number, (file, mode) in enumerate(zip(files, ("rb", "wb", "wb"), strict=True)):
        with file.open(mode) as opened:
            os.dup2(opened.fileno(), number)
    sys.stdin, sys.stdout = open(0, encoding="utf-8", closefd=False), open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 -- for as long as the process lives
    # As Python has it: what is said of a mistake is written at once, whatever is in it.
    sys.stderr = open(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115 -- the same
    os.environ.clear()
    os.environ.update(start.env)
    os.chdir(start.cwd)
    sys.path[:0] = start.env["PYTHONPATH"].split(os.pathsep)
    sys.argv = start.words
    if start.strict:
        warnings.simplefilter("error")
    module, _, function = start.program.partition(":")
    sys.exit(getattr(import_module(module), function)())
