"""The Pub/Sub emulator of this package, as a process of its own."""

import importlib.util
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import relay
from relay.dev.sandbox import Sandbox
from relay.dev.server import EmbeddedServer
from relay.errors import DevError
from relay.extras import installed_by

ADDRESS = re.compile(r"^127\.0\.0\.1:(\d+)$", re.MULTILINE)


class EmbeddedPubSub(EmbeddedServer):
    """A Pub/Sub emulator of one's own, on loopback; what it holds is lost when it stops."""

    name: ClassVar[str] = "PubSub"
    env: ClassVar[Mapping[str, str] | None] = None  # a Python like ours: it needs what ours needs
    # Found from here as we were, whether the package is installed or a checkout.
    cwd = Path(relay.__file__).parents[1]

    def __init__(self, sandbox: Sandbox) -> None:
        super().__init__(sandbox)
        if importlib.util.find_spec("grpc") is None:
            raise DevError(f"The Pub/Sub emulator needs gRPC, which is not installed. Run: {installed_by('dev')}")

    @property
    def url(self) -> str:
        """What PUBSUB_EMULATOR_HOST is set to."""
        return f"127.0.0.1:{self.port}"

    def _command(self) -> Sequence[str | Path]:
        return (sys.executable, "-m", "relay.dev.pubsub", "--port", str(self.port))

    def _choose_port(self) -> int:
        return 0  # it chooses for itself, and says which

    def _answers(self) -> bool:
        announced = ADDRESS.search(self._log_text())
        if announced is None:
            return False
        self.port = int(announced[1])
        return True
