"""Google's Pub/Sub emulator, where gcloud has installed it: the broker into which everything is measured."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from benchmarks import machine
from relay.dev.sandbox import Sandbox
from relay.dev.server import EmbeddedServer

_JAR = "platform/pubsub-emulator/lib/cloud-pubsub-emulator-*-all.jar"
_ROOTS = ("/usr/lib/google-cloud-sdk", "/usr/share/google-cloud-sdk", "/opt/google-cloud-sdk", "~/google-cloud-sdk")
# A message that waits costs it about 15 kB, and 2 kB for good: with the heap that Java chooses it soon does nothing but
# collect garbage.
_ENOUGH_MB, _LITTLE_MB = 8_192, 4_096
# So many, and their delivery, fill about half of what is new.
_MESSAGES_AT_ONCE = 100_000
_STARTED = re.compile(r"Server started, listening on (\d+)")


def jar() -> Path | None:
    """Where the emulator is; None where it, or Java, is not installed."""
    if shutil.which("java") is None:
        return None
    gcloud = shutil.which("gcloud")
    roots = [Path(root).expanduser() for root in _ROOTS]
    roots += [Path(gcloud).resolve().parents[1]] if gcloud else []
    return next((found for root in roots for found in sorted(root.glob(_JAR))), None)


def heap_mb(memory: int) -> int:
    """The heap of the emulator on a machine with so many bytes of memory: a third of it, and not more than it needs."""
    return min(_ENOUGH_MB, memory // 3 // 2**20)


class GooglePubSub(EmbeddedServer):
    """Google's emulator, on loopback."""

    name: ClassVar[str] = "GooglePubSub"
    env: ClassVar[Mapping[str, str] | None] = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "TZ": "UTC"}

    def __init__(self, sandbox: Sandbox, program: Path) -> None:
        super().__init__(sandbox)
        self._jar = program
        self._heap_mb = heap_mb(machine.memory())
        self._since_cleared = 0
        self._is_new = True

    @property
    def url(self) -> str:
        """What PUBSUB_EMULATOR_HOST is set to."""
        return f"127.0.0.1:{self.port}"

    @property
    def words(self) -> str:
        """What it is, and whether it is short of memory."""
        little = f", with a heap of only {self._heap_mb} MB" if self._heap_mb < _LITTLE_MB else ""
        return f"Google's emulator, {self._jar.stem.split('-')[-2]}{little}"

    def expect(self, messages: int) -> None:
        """Clear up now, where Java's tools are installed, if it would come to that in the midst of so many messages."""
        self._is_new = False
        self._since_cleared += messages
        if self._since_cleared > _MESSAGES_AT_ONCE and (tool := shutil.which("jcmd")):
            # Where they are of another Java they may not reach this one, and figures are noisier.
            subprocess.run([tool, str(self.pid), "GC.run"], check=False, capture_output=True)
            self._since_cleared = messages

    def renew(self) -> None:
        """Begin anew, without what the messages of before have left for good."""
        if self._is_new:
            return
        self.restart()
        self._since_cleared = 0
        self._is_new = True

    def _command(self) -> Sequence[str | Path]:
        # What is new has most of the heap: when it is full, everything stops until it is looked through.
        new = self._heap_mb * 5 // 8
        memory = (f"-Xms{self._heap_mb}m", f"-Xmx{self._heap_mb}m", f"-Xmn{new}m", "-XX:+UseParallelGC")
        return ("java", *memory, "-jar", self._jar, "--host=127.0.0.1", f"--port={self.port}")

    def _answers(self) -> bool:
        return _STARTED.search(self._log_text()) is not None
