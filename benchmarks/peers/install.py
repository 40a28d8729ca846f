"""Installs the peers, each language in a place of its own: `python -m benchmarks.peers.install`."""

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.table import HERE, NODE, NODE_MODULES, PEERS, PYTHON, VENV

_STAMP = ".installed"
_PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes", "-r")
_NPM = ("ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")


def main() -> None:
    """Install what can be installed, and say what cannot."""
    for sentence in (python(), node()):
        print(sentence, flush=True)


def python() -> str:
    """The peers in Python, with the interpreter that runs the relay here."""
    lock = HERE / "requirements.txt"
    steps: list[list[str | Path]] = [
        [sys.executable, "-m", "venv", "--clear", VENV],
        [VENV / "bin" / "python", *_PIP, lock],
    ]
    return _install(PYTHON, VENV, lock, steps)


def node() -> str:
    """The peers in Node, with a Node of the version that the lock names where the system is Linux."""
    npm = shutil.which("npm")
    if npm is None:
        return skipped(NODE, "npm is not on PATH")
    return _install(NODE, NODE_MODULES, HERE / "package-lock.json", [[npm, *_NPM]])


def skipped(language: str, why: str) -> str:
    """What is not measured, in words."""
    return f"{_names(language)} are skipped: {why}"


def _install(language: str, place: Path, lock: Path, steps: Sequence[Sequence[str | Path]]) -> str:
    stamp, wanted = place / _STAMP, hashlib.sha256(lock.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return f"{_names(language)} are installed"
    for step in steps:
        try:
            subprocess.run(step, cwd=HERE, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            shutil.rmtree(place, ignore_errors=True)  # half of it would be measured otherwise
            return skipped(language, str(error))
    stamp.write_text(wanted, encoding="utf-8")
    return f"{_names(language)} are installed now"


def _names(language: str) -> str:
    *first, last = [peer.package for peer in PEERS if peer.language == language]
    return f"{', '.join(first)} and {last}"


if __name__ == "__main__":
    main()
