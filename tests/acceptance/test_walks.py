"""The README's walks through a service that exists: every file and every command as they stand there."""

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

import pytest

from tests.support.commands import ROOT, Commands, exported

pytestmark = pytest.mark.slow("follows a page, process by process")

README = (ROOT / "README.md").read_text(encoding="utf-8")
SECONDS = 60.0


def section(title: str) -> list[tuple[str, str, str]]:
    """The snippets of a section: the file that the words before one name, its language, its text."""
    text = README.partition(f"\n### {title}\n")[2]
    text = re.split(r"^##+ ", text, maxsplit=1, flags=re.MULTILINE)[0]
    found = re.findall(r"(.*?)^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [((re.findall(r"`([\w/]+\.py)`", before) or [""])[0], language, code) for before, language, code in found]


def consumer() -> str:
    """`consume.py`, as it is saved before the walks begin."""
    (code,) = re.findall(r"^```python\n((?:(?!^```).)*?Consumer\(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return str(code)


def free_port() -> str:
    """One that nobody listens on; the README says 8000."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


class Terminal:
    """The second terminal: a folder, the variables that were pasted, and what runs in the background."""

    def __init__(self, folder: Path, variables: Mapping[str, str], opened: ExitStack) -> None:
        self._folder = folder
        # The environment of the checkout, activated; nothing of the caller's settings.
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("RELAY_", "DJANGO_"))}
        self._environment = {**kept, **variables, "PATH": path, "PYTHONPATH": str(ROOT)}
        self._opened = opened
        self._port = free_port()

    def write(self, name: str, code: str) -> None:
        """Save a file; the end of one that a command has made is written behind it."""
        path = self._folder / name
        before = path.read_text(encoding="utf-8") if name.endswith("settings.py") else ""
        path.write_text(before + code, encoding="utf-8")

    def type(self, line: str) -> str:
        """Run a line, and answer with what it prints; a `&` leaves it running."""
        words = shlex.split(line.replace("8000", self._port), comments=True)
        if words[-1] == "&":
            self._opened.enter_context(self.running(words[:-1]))
            return ""
        done = subprocess.run(
            words, cwd=self._folder, env=self._environment, capture_output=True, text=True, timeout=SECONDS, check=False
        )
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        return done.stdout

    @contextmanager
    def running(self, words: list[str]) -> Iterator[IO[str]]:
        """What a program prints, until the block ends."""
        with subprocess.Popen(
            words, cwd=self._folder, env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            try:
                assert process.stdout
                yield process.stdout
            finally:
                process.send_signal(signal.SIGKILL)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    """The second of two, with what `relay dev` has printed in the first."""
    with Commands({}, tmp_path).from_nothing("dev") as servers, ExitStack() as opened:
        yield Terminal(tmp_path, exported(servers), opened)


@pytest.mark.skipif(shutil.which("curl") is None, reason="the walks speak to their services by curl")
@pytest.mark.parametrize("title", ["FastAPI and SQLAlchemy", "Django"])
def test_the_first_event_of_a_service_is_consumed(terminal: Terminal, title: str) -> None:
    """With the files and the commands of the README, and no other step."""
    snippets = section(title)
    assert snippets
    terminal.write("consume.py", consumer())
    for name, language, code in snippets:
        if language == "python":
            terminal.write(name, code)
            continue
        for line in code.splitlines():
            if "consumers run" not in line:
                printed = terminal.type(line)
                assert printed == '{"id":1}' or "curl" not in line or printed == '{"id": 1}'
                continue
            command, _, expected = line.partition("#")
            with terminal.running(shlex.split(command)) as output:
                assert output.readline().strip() == expected.strip()
