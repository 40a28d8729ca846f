"""Whoever is measured is a process: it says `ready`, waits for `go`, works, and answers with a line of JSON."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_STOP_SECONDS = 20.0


class ContestError(Exception):
    """A contestant did not do what it was asked for."""


@dataclass
class Contestant:
    """A process that is measured."""

    process: "subprocess.Popen[str]"
    command: Sequence[str]

    def go(self) -> None:
        """Let it begin; one that works until it is told to end is told with the second word."""
        self.say("go")

    def say(self, line: str) -> None:
        """Let it have a line; of one that has ended `line` tells."""
        with suppress(BrokenPipeError):
            self._stdin.write(f"{line}\n")
            self._stdin.flush()

    def answer(self) -> dict[str, Any]:
        """What it found; the process ends with it."""
        return self.heard(self.line())

    def heard(self, line: str) -> dict[str, Any]:
        """What it said with a line; the process ends with it."""
        self.end()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self) -> None:
        """Stop it, in the way in which every program of a benchmark ends: when its input does."""
        with suppress(BrokenPipeError):
            self._stdin.close()
        try:
            self.process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()

    def ready(self) -> None:
        """Wait until it may be told to begin."""
        if (line := self.line()) != "ready":
            self.end()
            raise ContestError(f"{' '.join(self.command)} said {line!r} in place of ready")

    def line(self) -> str:
        """What it says next; this waits for it."""
        if self.process.stdout is None:
            raise AssertionError("started without this pipe")
        line = self.process.stdout.readline()
        if not line:
            self.process.wait(_STOP_SECONDS)
            raise ContestError(f"{' '.join(self.command)} ended with code {self.process.returncode}")
        return line.strip()

    @property
    def _stdin(self) -> Any:
        if self.process.stdin is None:
            raise AssertionError("started without this pipe")
        return self.process.stdin


def start(command: Sequence[str], environment: Mapping[str, str], folder: Path | None = None) -> Contestant:
    """Start a process, and wait until it is ready."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
        cwd=folder,
    )
    contestant = Contestant(process, command)
    contestant.ready()
    return contestant


# What has been used so far, of something.
Meter = Callable[[], float]


@dataclass(frozen=True)
class Race:
    """What came of it: the answers, the seconds from the first word to the last answer, what meters read meanwhile."""

    answers: Sequence[dict[str, Any]]
    seconds: float
    used: Mapping[str, float]

    @property
    def events(self) -> int:
        """How many all of them have published, as they say."""
        return sum(answer["events"] for answer in self.answers)


def race(contestants: Sequence[Contestant], meters: Mapping[str, Meter] | None = None) -> Race:
    """Let all begin at once, and wait for what each has found."""
    meters = meters or {}
    try:
        before = {name: meter() for name, meter in meters.items()}
        began = time.monotonic()
        for contestant in contestants:
            contestant.go()
        lines = [contestant.line() for contestant in contestants]
        seconds = time.monotonic() - began
        used = {name: meter() - before[name] for name, meter in meters.items()}
    except BaseException:  # Ctrl-C, too, leaves no process behind
        for contestant in contestants:
            contestant.end()
        raise
    answers = [contestant.heard(line) for contestant, line in zip(contestants, lines, strict=True)]
    return Race(answers, seconds, used)


def take_part() -> None:
    """As a contestant: say that everything is ready, and wait for the word."""
    say_ready()
    input()


def say_ready() -> None:
    """As a contestant that hears the word in a way of its own: say that everything is ready."""
    print("ready", flush=True)


def until_told() -> None:
    """As a contestant that works until it is told to end: wait for that word."""
    input()


def answer(**values: Any) -> None:
    """As a contestant: say what was found."""
    print(json.dumps(values), flush=True)
