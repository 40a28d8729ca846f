"""Dockerfile, heroku.yml, Procfile and .dockerignore agree with each other and with the project."""

import shlex
import tomllib
from typing import Any

import pytest

from tests.support.commands import ROOT
from tests.support.dockerfile import Command, Copy, Ignore, Run, Step, User, read_dockerfile
from tests.support.roles import heroku_processes, manifest_of, procfile


def _text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def _last_stage() -> tuple[Step, ...]:
    return read_dockerfile(_text("Dockerfile"))[-1].steps


def test_both_ways_to_heroku_start_the_same_processes() -> None:
    """The Procfile lists what heroku.yml releases and runs, word for word."""
    assert procfile(_text("Procfile")) == heroku_processes(_text("heroku.yml"))


def test_heroku_releases_from_the_image_that_it_runs() -> None:
    """One image is built, from our Dockerfile, and the release phase uses it."""
    manifest: dict[str, Any] = manifest_of(_text("heroku.yml"))
    assert manifest["build"] == {"docker": {"relay": "Dockerfile"}}
    assert manifest["release"]["image"] == "relay"


def test_the_image_is_the_relay_unless_told_otherwise() -> None:
    """The default command is the relay process of the Procfile."""
    *_, command = _last_stage()
    assert command == Command(tuple(shlex.split(procfile(_text("Procfile"))["relay"])))


def test_the_image_has_the_python_of_the_buildpack() -> None:
    """The first stage is the slim image of .python-version, and the others stand on it."""
    bases = [stage.base for stage in read_dockerfile(_text("Dockerfile"))]
    assert bases == [f"python:{_text('.python-version').strip()}-slim", "base", "base"]


def test_the_image_carries_what_the_wheel_carries() -> None:
    """The packages copied from the checkout are those of the distribution, and nothing else is."""
    wheel = tomllib.loads(_text("pyproject.toml"))["tool"]["hatch"]["build"]["targets"]["wheel"]
    copied = [step.source for step in _last_stage() if isinstance(step, Copy) and step.stage is None]
    assert sorted(copied) == sorted(wheel["packages"])


def test_packages_are_installed_by_hash_and_outside_the_last_stage() -> None:
    """The lock's hashes are required, nothing is compiled, and the image itself installs nothing."""
    stages = read_dockerfile(_text("Dockerfile"))
    runs = [(stage.name, step.command) for stage in stages for step in stage.steps if isinstance(step, Run)]
    ((stage, command),) = [(stage, command) for stage, command in runs if _installs(command)]
    assert stage == "packages"
    assert "--require-hashes --only-binary :all: -r requirements.txt" in command


def test_the_process_is_not_root() -> None:
    """USER is a number other than root's, and nothing is built after it."""
    *_, user, _ = _last_stage()
    assert isinstance(user, User)
    assert user.uid
    assert user.gid


def test_a_build_sees_its_sources_and_no_secret() -> None:
    """The context holds what is copied; not .env, the history, the tests or this machine's byte code."""
    ignore = Ignore.read(_text(".dockerignore"))
    seen = ("requirements.txt", "relay/cli/main.py", "consumers/cli/run.py", "idempotency/__init__.py")
    assert all(ignore.admits(path) for path in seen)
    unseen = (".env", ".git/config", ".venv/bin/python", "tests/conftest.py", "relay/__pycache__/emit.pyc", "docs")
    assert [path for path in unseen if ignore.admits(path)] == []


@pytest.mark.parametrize("instruction", ['ENTRYPOINT ["python"]', "COPY --chown=1:1 a b", "CMD python -m relay run"])
def test_an_instruction_that_the_replay_would_miss_is_an_error(instruction: str) -> None:
    """What the reader does not understand it does not pass over."""
    with pytest.raises(ValueError, match=r"Dockerfile|Expecting value"):
        read_dockerfile(f"FROM scratch\n{instruction}\n")


@pytest.mark.parametrize("text", ["run:\n   relay: x\n", "run:\n  relay: x\n  relay: y\n", "- run\n", "run\n"])
def test_a_manifest_beyond_the_reader_is_an_error(text: str) -> None:
    """YAML that the reader was not made for is refused, not guessed at."""
    with pytest.raises(ValueError, match=r"heroku\.yml"):
        manifest_of(text)


def _installs(command: str) -> bool:
    return any(word in command for word in ("pip", "apt", "uv"))
