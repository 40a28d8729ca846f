"""Builds and runs our image without a container engine: its instructions, replayed in a folder.

What differs from an image is said here. The folder of a stage stands for its root; a path below WORKDIR is moved there
in COPY and ENV, while RUN lines are executed as they stand, in that WORKDIR. `python` of the base image is an
interpreter of this machine with the pip of the interpreter that runs the tests. The process is the image's USER when
the tests are root, and whoever runs them otherwise.
"""

import os
import shutil
import stat
import string
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import assert_never

from relay.dev.account import Account, temporary_parent
from tests.support.dockerfile import Command, Copy, Env, Ignore, Run, Stage, Step, User, Workdir, read_dockerfile

BUILD_SECONDS = 100.0
SECONDS = 60.0
_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
_SUITABLE = "import ssl, sys, venv; sys.exit(sys.version_info < (3, 11))"


@dataclass(frozen=True)
class Image:
    """A built tree, and the process that it is for."""

    folder: Path
    environment: Mapping[str, str]
    command: tuple[str, ...]
    account: Account | None

    @property
    def write_protected(self) -> bool:
        """Whether the modes of the tree bind the process; they do not bind root."""
        return self.account is not None or os.geteuid() != 0

    def run(self, words: Sequence[str], settings: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """Run a command in the image to its end."""
        with self.start(words, settings) as process:
            stdout, stderr = process.communicate(timeout=SECONDS)
        return subprocess.CompletedProcess(words, process.returncode, stdout, stderr)

    @contextmanager
    def start(self, words: Sequence[str], settings: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
        """Start a command in the image, and kill it at the end of the block if it still runs."""
        with subprocess.Popen(
            words,
            cwd=self.folder,
            env={**self.environment, "HOME": "/", **settings},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **(self.account.identity if self.account else {}),
        ) as process:
            try:
                yield process
            finally:
                process.kill()
                process.communicate()

    def contents(self) -> dict[str, tuple[int, int, int]]:
        """Every path with its mode, size and time: equal before and after when nothing was written."""
        facts = {path: path.lstat() for path in self.folder.rglob("*")}
        return {str(path): (fact.st_mode, fact.st_size, fact.st_mtime_ns) for path, fact in facts.items()}


@dataclass
class _Tree:
    """A stage under construction."""

    root: Path
    environment: dict[str, str]
    workdir: str = "/"
    command: tuple[str, ...] = ()

    def place(self, path: str) -> Path:
        """Where a path of the image is on this machine."""
        return self.root / str(PurePosixPath(self.workdir, path)).lstrip("/")


@contextmanager
def built_image(context: Path) -> Iterator[Image]:
    """Replay the Dockerfile of a checkout; the tree is write-protected, and removed at the end of the block."""
    stages = read_dockerfile((context / "Dockerfile").read_text(encoding="utf-8"))
    interpreter, account = _interpreter_and_account(stages)
    folder = Path(tempfile.mkdtemp(prefix="relay-image-", dir=temporary_parent(account)))
    try:
        folder.chmod(0o755)
        tree = _Replay(context, folder, interpreter).build(stages)
        _protect(tree.root)
        yield Image(tree.place("."), tree.environment, tree.command, account)
    finally:
        _remove(folder)


def _interpreter_and_account(stages: Sequence[Stage]) -> tuple[Path, Account | None]:
    """The running interpreter where it can be used by the image's user, else one of the system's.

    Where root finds none, as where it may not change users, the image runs as root.
    """
    own = Path(sys.base_prefix, "bin", "python3")
    if os.geteuid() == 0:
        (user,) = (step for step in stages[-1].steps if isinstance(step, User))
        account = Account(user.uid, user.gid)
        for candidate in (own, Path("/usr/local/bin/python3"), Path("/usr/bin/python3")):
            if account.can_run(str(candidate), "-c", _SUITABLE):
                return candidate, account
    return own, None


class _Replay:
    """Executes the instructions of the stages, one after the other."""

    def __init__(self, context: Path, folder: Path, interpreter: Path) -> None:
        self._context = context
        self._ignore = Ignore.read((context / ".dockerignore").read_text(encoding="utf-8"))
        self._folder = folder
        self._built: dict[str, _Tree] = {}
        # Beside the image's own variables a build has the machine's, in which pip finds its index and its certificates.
        self._outside = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))
        }
        self._base = self._base_environment(interpreter)

    def _base_environment(self, interpreter: Path) -> dict[str, str]:
        programs = self._folder / "base"
        programs.mkdir(mode=0o755)
        # A script, not a link: a link would be taken for the interpreter's home.
        python = programs / "python"
        python.write_text(f'#!/bin/sh\nexec "{interpreter}" "$@"\n', encoding="utf-8")
        python.chmod(0o755)
        return {"PATH": f"{programs}:{_SYSTEM_PATH}"}

    def build(self, stages: Sequence[Stage]) -> _Tree:
        """Build every stage; all but the last are gone afterwards, so that nothing of theirs is needed."""
        for number, stage in enumerate(stages):
            tree = self._begin(stage, self._folder / f"stage-{number}")
            for step in stage.steps:
                self._execute(step, tree)
            self._built[stage.name] = tree
        last = self._built.pop(stages[-1].name)
        for tree in self._built.values():
            shutil.rmtree(tree.root)
        return last

    def _begin(self, stage: Stage, root: Path) -> _Tree:
        base = self._built.get(stage.base)
        if base is None:
            root.mkdir(mode=0o755)
            return _Tree(root, dict(self._base))
        shutil.copytree(base.root, root, symlinks=True)
        return _Tree(root, dict(base.environment), base.workdir, base.command)

    def _execute(self, step: Step, tree: _Tree) -> None:
        match step:
            case Workdir():
                tree.workdir = step.path
                tree.place(".").mkdir(mode=0o755, parents=True, exist_ok=True)
            case Env():
                for name, value in step.values.items():
                    tree.environment[name] = _moved(string.Template(value).substitute(tree.environment), tree)
            case Copy():
                self._copy(step, tree)
            case Run():
                self._run(step.command, tree)
            case User():
                pass  # the process becomes it when it is started
            case Command():
                tree.command = step.words
            case _:
                assert_never(step)

    def _copy(self, step: Copy, tree: _Tree) -> None:
        source = self._built[step.stage].place(step.source) if step.stage else self._context / step.source
        target = tree.place(step.target)
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True, ignore=None if step.stage else self._unseen)
        elif step.stage or self._ignore.admits(step.source):
            shutil.copy(source, target)
        else:
            raise AssertionError(f"Dockerfile: COPY {step.source}: .dockerignore keeps it from the build")

    def _unseen(self, folder: str, names: list[str]) -> list[str]:
        inside = Path(folder).relative_to(self._context)
        return [name for name in names if not self._ignore.admits((inside / name).as_posix())]

    def _run(self, command: str, tree: _Tree) -> None:
        with tempfile.TemporaryDirectory(dir=self._folder) as modules:
            Path(modules, "pip").symlink_to(_pip())
            try:
                ran = subprocess.run(
                    ["/bin/sh", "-c", command],
                    cwd=tree.place("."),
                    env={**self._outside, "PYTHONPATH": modules, **tree.environment},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    umask=0o022,
                    timeout=BUILD_SECONDS,
                    check=False,
                )
            except subprocess.TimeoutExpired as late:
                raise AssertionError(_unbuilt(command, f"took more than {late.timeout:.0f} s")) from late
        if ran.returncode:
            raise AssertionError(_unbuilt(command, f"ended with {ran.returncode}") + f"\n{ran.stdout[-4000:]}")


def _unbuilt(command: str, ending: str) -> str:
    return (
        f"the image cannot be built: RUN {command} {ending}. Installing needs the package index that pip is "
        "configured for; without it this test cannot pass."
    )


def _pip() -> Path:
    found = find_spec("pip")
    if not found or not found.submodule_search_locations:
        raise AssertionError(f"{sys.executable} has no pip to stand for that of the base image; make install brings it")
    return Path(found.submodule_search_locations[0])


def _moved(value: str, tree: _Tree) -> str:
    """A list of paths, with those of the image where they are on this machine."""
    inside = f"{tree.workdir}/"
    return ":".join(str(tree.place(part)) if part.startswith(inside) else part for part in value.split(":"))


def _protect(root: Path) -> None:
    for path in (root, *root.rglob("*")):
        if not path.is_symlink():
            path.chmod(stat.S_IMODE(path.stat().st_mode) & ~0o222)


def _remove(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)
    shutil.rmtree(folder)
