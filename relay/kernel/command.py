"""What programs of the command line have in common: how one starts, and how it complains."""

import gc
import os
import signal
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version

FINE, FAILED, MISUSED = 0, 1, 2
# As a shell has it of a program that SIGPIPE ended.
NOBODY_READS = 128 + 13


def start(program: str, load: Callable[[], Callable[[], int]], remedy: Callable[[], str]) -> int:
    """Load a program and run it; where whoever read its output is gone, as after `| head`, end without a word.

    `load` imports what the program needs; where a package is missing, `remedy` says how it is installed.
    """
    try:
        try:
            return _loaded(program, load, remedy)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter writes what is left when it ends, and would complain then.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NOBODY_READS


def _loaded(program: str, load: Callable[[], Callable[[], int]], remedy: Callable[[], str]) -> int:
    """Listen for SIGTERM, then load what the program needs, which takes long enough to be asked to stop meanwhile."""
    # As process 1 of a container there is no default action: a signal before a command listens for it would be lost.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        run = load()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in {"relay", "consumers", "idempotency"}:
            raise
        complain(program, f"the commands need the package {package!r}; run: {remedy()}")
        return MISUSED
    return run()


def spare_the_collector() -> None:
    """Look for garbage in what the process works with, and not again and again in all that it has imported.

    What comes and goes with the work is gone without any collector; what little there is left for it can wait.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)


def complain(program: str, error: object) -> None:
    """Say on stderr what is wrong, each line with the program's name."""
    for line in str(error).strip().splitlines():
        print(f"{program}: {line}", file=sys.stderr)  # noqa: T201 -- a command


def not_text(words: Sequence[str]) -> int | None:
    """The place of the first argument with bytes that are no text; Python hides them in lone surrogates."""
    for place, word in enumerate(words, 1):
        try:
            word.encode()
        except UnicodeEncodeError:
            return place
    return None


def release() -> str:
    """Which release this is, as one word."""
    return _installed() or "checkout"


def version_line() -> str:
    """What is said to `--version`."""
    return f"outbox-relay {_installed() or '(a checkout that is not installed)'}"


def _installed() -> str | None:
    try:
        return version("outbox-relay")
    except PackageNotFoundError:
        return None
