"""Reads our Dockerfile and .dockerignore: the instructions that they use, and an error for any other."""

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath


@dataclass(frozen=True, slots=True)
class Workdir:
    """Where the instructions that follow, and the process, are."""

    path: str


@dataclass(frozen=True, slots=True)
class Copy:
    """Files from the context, or from an earlier stage."""

    source: str
    target: str
    stage: str | None


@dataclass(frozen=True, slots=True)
class Run:
    """A shell command of the build."""

    command: str


@dataclass(frozen=True, slots=True)
class Env:
    """Variables for the instructions that follow, and for the process."""

    values: dict[str, str]


@dataclass(frozen=True, slots=True)
class User:
    """Who the process is, in numbers."""

    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Command:
    """What the process is."""

    words: tuple[str, ...]


Step = Workdir | Copy | Run | Env | User | Command


@dataclass(frozen=True, slots=True)
class Stage:
    """A FROM and what follows it."""

    base: str
    name: str
    steps: tuple[Step, ...]


def read_dockerfile(text: str) -> list[Stage]:
    """The stages, in order."""
    found: list[tuple[str, str, list[Step]]] = []
    for line in _instructions(text):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            found.append((base, name, []))
        else:
            found[-1][2].append(_step(word, rest.strip()))
    return [Stage(base, name, tuple(steps)) for base, name, steps in found]


def _instructions(text: str) -> Iterator[str]:
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    yield from "\n".join(lines).replace("\\\n", "").splitlines()


def _step(word: str, rest: str) -> Step:
    match word:
        case "WORKDIR":
            return Workdir(rest)
        case "COPY":
            return _copy(rest.split())
        case "RUN":
            return Run(rest)
        case "ENV":
            return Env(dict(pair.split("=", 1) for pair in shlex.split(rest)))
        case "USER":
            uid, _, gid = rest.partition(":")
            return User(int(uid), int(gid))
        case "CMD":
            # The shell form is no JSON and is refused here.
            return Command(tuple(json.loads(rest)))
    raise ValueError(f"Dockerfile: {word} is an instruction that this reader was not taught")


def _copy(words: list[str]) -> Copy:
    stage = None
    if words[0].startswith("--from="):
        stage = words.pop(0).removeprefix("--from=")
    if len(words) != 2 or words[0].startswith("--"):
        raise ValueError(f"Dockerfile: COPY {' '.join(words)}: this reader knows one source, one target and --from")
    return Copy(words[0], words[1], stage)


@dataclass(frozen=True, slots=True)
class Ignore:
    """Which paths of the context a build sees: the last pattern that matches decides."""

    patterns: tuple[str, ...]

    @staticmethod
    def read(text: str) -> "Ignore":
        """The patterns of a .dockerignore: `*`, a name at the top, `**/name`, and their `!` opposites."""
        patterns = tuple(line for line in text.splitlines() if line and not line.startswith("#"))
        for pattern in patterns:
            name = pattern.removeprefix("!").removeprefix("**/")
            if name != "*" and set(name) & set("*?[/\\"):
                raise ValueError(f".dockerignore: {pattern} is a pattern that this reader was not taught")
        return Ignore(patterns)

    def admits(self, path: str | PurePosixPath) -> bool:
        """Whether the build sees the path, which is relative to the context."""
        parts = PurePosixPath(path).parts
        admitted = True
        for pattern in self.patterns:
            name = pattern.removeprefix("!")
            if name == "*" or name == parts[0] or (name.startswith("**/") and name[3:] in parts):
                admitted = pattern.startswith("!")
        return admitted
