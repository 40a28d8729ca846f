"""The peers, and which of them are installed."""

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

HERE = Path(__file__).resolve().parent
VENV = HERE.parent.parent / ".venv-peers"
NODE_MODULES = HERE / "node_modules"
LEAST_NODE = (22, 18)  # which graphile-worker asks for
PYTHON, NODE = "Python", "Node"
_INSTALL = "make bench-peers"


@dataclass(frozen=True)
class Peer:
    """Somebody else's queue or relay, and the program that drains it."""

    package: str
    language: str
    left: str  # a query: how much of what was stored is not done
    expected: int  # about so many events a second, from which follows how many it is given

    @property
    def stem(self) -> str:
        """What its program and its database are named after."""
        return self.package.replace("-", "_")


PEERS = (
    Peer("graphile-worker", NODE, "select count(*) from graphile_worker.jobs", 20_000),
    Peer("pg-boss", NODE, "select count(*) from pgboss.job where name = 'events' and state <> 'completed'", 20_000),
    Peer("txoutbox", PYTHON, "select count(*) from outbox", 20_000),
    Peer("pgqueuer", PYTHON, "select count(*) from pgqueuer", 12_000),
    Peer("faststream-outbox", PYTHON, "select count(*) from outbox", 6_000),
    Peer("procrastinate", PYTHON, "select count(*) from procrastinate_jobs", 700),
)
# Queues in Python that give each job a lease or an owner of its own, as an inbox does.
JOBS = ("pgqueuer", "procrastinate")


@dataclass(frozen=True)
class Entrant:
    """A peer as it is here: a version and how its program is started, or why it cannot be measured."""

    peer: Peer
    version: str = ""
    command: Sequence[str] = ()
    missing: str = ""

    @property
    def title(self) -> str:
        """What its figure is called."""
        return f"{' '.join(filter(None, (self.peer.package, self.version)))} ({self.peer.language})"


def entrants(venv: Path = VENV, node_modules: Path = NODE_MODULES) -> list[Entrant]:
    """All peers."""
    return [_in_python(peer, venv) if peer.language == PYTHON else _in_node(peer, node_modules) for peer in PEERS]


def node(node_modules: Path = NODE_MODULES) -> str | None:
    """The Node that the lock names where there is one for this system, or one on PATH that is new enough."""
    locked = next((str(found) for found in sorted(node_modules.glob("node-*-*/bin/node"))), None)
    found = locked or shutil.which("node")
    return found if found and node_version(found) >= LEAST_NODE else None


def node_version(program: str) -> tuple[int, ...]:
    """The version of a Node, in numbers; none where it does not run."""
    try:
        said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ()
    return tuple(int(number) for number in re.findall(r"\d+", said))


def workers(venv: Path = VENV) -> list[Entrant]:
    """Those whose jobs are measured by themselves, without a broker."""
    return [_in_python(peer, venv, "jobs") for peer in PEERS if peer.package in JOBS]


def _in_python(peer: Peer, venv: Path, what: str = "drain") -> Entrant:
    site = [str(path) for path in venv.glob("lib/python*/site-packages")]
    version = next((found.version for found in distributions(name=peer.package, path=site)), None) if site else None
    if version is None:
        return Entrant(peer, missing=f"not installed: {_INSTALL} installs it")
    program = f"benchmarks.peers.{peer.stem}_{what}"
    return Entrant(peer, version, (str(venv / "bin" / "python"), "-m", program))


def _in_node(peer: Peer, node_modules: Path) -> Entrant:
    manifest = node_modules / peer.package / "package.json"
    if not manifest.exists():
        return Entrant(peer, missing=f"not installed: {_INSTALL} installs it, where npm is")
    version = json.loads(manifest.read_text(encoding="utf-8"))["version"]
    if (program := node(node_modules)) is None:
        least = ".".join(map(str, LEAST_NODE))
        return Entrant(peer, version, missing=f"it asks for Node {least} or newer, which is not on PATH")
    return Entrant(peer, version, (program, str(HERE / f"{peer.stem}_drain.mjs")))
