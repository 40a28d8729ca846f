"""`relay dev`: the stack for as long as a person works with it, or a command runs in it."""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType

from relay.dev.stack import EVERYTHING, Part, Stack
from relay.errors import ConfigurationError, DevError

WATCH_SECONDS = 0.5

Handler = Callable[[int, FrameType | None], None]


def say(line: str) -> None:
    """Print a line at once, even into a pipe."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def dev(
    command: Sequence[str] = (),
    *,
    parts: Collection[Part] = EVERYTHING,
    prepare: Callable[[Stack], None] | None = None,
    topic: str | None = None,
    echo: Callable[[str], None] = say,
) -> int:
    """Keep a stack up until Ctrl-C or SIGTERM, or while `command` runs in its environment.

    `prepare` is called once the servers answer; `topic` names the topic that it creates, with a
    subscription of the same name. Returns the exit code: the command's own (128 and the signal's
    number if one ended it), else 0.
    """
    prepared = {"RELAY_TOPIC": topic} if topic else {}
    if command:
        with _handling({signal.SIGTERM: _interrupt}), _prepared(parts, prepare) as stack:
            return _run(command, {**stack.environment, **prepared})
    started = time.monotonic()
    try:
        with _handling({signal.SIGTERM: _interrupt}), _prepared(parts, prepare) as stack:
            for name, value in {**stack.environment, **prepared}.items():
                echo(f"export {name}={shlex.quote(value)}")
            if topic:
                echo(f"# The outbox is migrated. Its topic {topic!r} has a subscription of the same name.")
            seconds = time.monotonic() - started
            echo(f"# Ready in {seconds:.1f} s. Ctrl-C stops the servers and removes their data.")
            _watch(stack)
    except KeyboardInterrupt:
        echo("# The servers and their data are gone.")
    return 0


@contextmanager
def _prepared(parts: Collection[Part], prepare: Callable[[Stack], None] | None) -> Iterator[Stack]:
    with Stack.start(parts) as stack:
        if prepare is not None:
            prepare(stack)
        yield stack


def _watch(stack: Stack) -> None:
    """Return never; raise if a server ends by itself."""
    while True:
        for server in stack.servers:
            if not server.running:
                raise DevError(
                    f"{server.name} ended by itself, so the stack was stopped. The last that it "
                    f"said:\n{server.log_tail()}\nStart `relay dev` again for a fresh one."
                )
        time.sleep(WATCH_SECONDS)


def _run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the command; a Ctrl-C reaches it from the terminal, a SIGTERM through us."""
    process: subprocess.Popen[bytes] | None = None
    terminated = False

    def terminate(_number: int, _frame: FrameType | None) -> None:
        nonlocal terminated
        terminated = True
        if process is not None:
            process.terminate()

    with _handling({signal.SIGTERM: terminate, signal.SIGINT: _leave_it_to_the_command}):
        try:
            process = subprocess.Popen(command, env={**os.environ, **environment})
        except OSError as error:
            raise ConfigurationError(
                f"{command[0]!r} could not be run: {error.strerror}. Name a program that is on "
                "the PATH, or give its path: relay dev -- python worker.py"
            ) from error
        if terminated:
            process.terminate()
        code = process.wait()
    return code if code >= 0 else 128 - code


@contextmanager
def _handling(handlers: Mapping[signal.Signals, Handler]) -> Iterator[None]:
    previous = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _leave_it_to_the_command(_number: int, _frame: FrameType | None) -> None:
    """Outlive the Ctrl-C, so that the servers outlive the command."""
