"""The peers of the benchmark: who they are, which of them are here, and what is said of the others."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from benchmarks.contest import ContestError
from benchmarks.figures import Size
from benchmarks.peers import install, table
from benchmarks.peers.events import bulks
from benchmarks.sections import peers
from benchmarks.stand import Plain, Stand

STAND = Stand("postgresql://u:p@127.0.0.1:1/postgres", "127.0.0.1:2", "an emulator", Plain(0))
TXOUTBOX = next(peer for peer in table.PEERS if peer.package == "txoutbox")
PG_BOSS = next(peer for peer in table.PEERS if peer.package == "pg-boss")


def manifest(folder: Path, package: str, version: str) -> None:
    """A package as npm leaves it."""
    (folder / package).mkdir(parents=True)
    (folder / package / "package.json").write_text(json.dumps({"version": version}), encoding="utf-8")


def of(package: str, entrants: list[table.Entrant]) -> table.Entrant:
    """The one of this package."""
    return next(entrant for entrant in entrants if entrant.peer.package == package)


@pytest.mark.parametrize("peer", table.PEERS, ids=lambda peer: peer.package)
def test_every_peer_has_a_program_and_a_pinned_version(peer: table.Peer) -> None:
    """What is measured can be repeated."""
    if peer.language == table.PYTHON:
        lock = (table.HERE / "requirements.txt").read_text(encoding="utf-8")
        assert f"\n{peer.package}==" in lock
        assert (table.HERE / f"{peer.stem}_drain.py").exists()
    else:
        wanted = json.loads((table.HERE / "package.json").read_text(encoding="utf-8"))["dependencies"]
        locked = json.loads((table.HERE / "package-lock.json").read_text(encoding="utf-8"))["packages"]
        assert locked[f"node_modules/{peer.package}"]["version"] == wanted[peer.package]
        assert (table.HERE / f"{peer.stem}_drain.mjs").exists()


def test_the_locks_name_no_host_of_packages() -> None:
    """Whoever installs them chooses where from."""
    assert "http" not in (table.HERE / "requirements.txt").read_text(encoding="utf-8")
    assert '"resolved"' not in (table.HERE / "package-lock.json").read_text(encoding="utf-8")


def test_who_is_not_installed_says_how_to_get_it(tmp_path: Path) -> None:
    """A figure without values has a reason in words."""
    found = table.entrants(tmp_path / "venv", tmp_path / "node_modules")

    assert [entrant.title for entrant in found][:3] == ["graphile-worker (Node)", "pg-boss (Node)", "txoutbox (Python)"]
    assert of("txoutbox", found).missing == "not installed: make bench-peers installs it"
    assert of("pg-boss", found).missing == "not installed: make bench-peers installs it, where npm is"


def test_a_peer_in_python_is_started_by_its_own_environment(tmp_path: Path) -> None:
    """Its packages are not among the relay's."""
    (tmp_path / "lib" / "python3.13" / "site-packages" / "txoutbox-0.2.2.dist-info").mkdir(parents=True)
    metadata = tmp_path / "lib" / "python3.13" / "site-packages" / "txoutbox-0.2.2.dist-info" / "METADATA"
    metadata.write_text("Metadata-Version: 2.1\nName: txoutbox\nVersion: 0.2.2\n", encoding="utf-8")

    found = of("txoutbox", table.entrants(tmp_path, tmp_path))

    assert (found.title, found.missing) == ("txoutbox 0.2.2 (Python)", "")
    assert found.command == (str(tmp_path / "bin" / "python"), "-m", "benchmarks.peers.txoutbox_drain")


@pytest.mark.parametrize(
    ("said", "able"), [("v22.18.0", True), ("v24.1.0", True), ("v20.20.2", False), ("what", False)]
)
def test_a_peer_in_node_needs_a_node_that_is_new_enough(tmp_path: Path, said: str, able: bool) -> None:  # noqa: FBT001
    """The lock brings one for Linux; elsewhere it is the one on PATH."""
    manifest(tmp_path, "pg-boss", "12.35.0")
    program = tmp_path / "node-any-any" / "bin" / "node"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho {said}\n", encoding="utf-8")
    program.chmod(0o755)

    found = of("pg-boss", table.entrants(tmp_path, tmp_path))

    assert found.title == "pg-boss 12.35.0 (Node)"
    if able:
        assert found.command == (str(program), str(table.HERE / "pg_boss_drain.mjs"))
    else:
        assert found.missing == "it asks for Node 22.18 or newer, which is not on PATH"


def test_without_npm_the_peers_in_node_are_skipped_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python alone is enough for the others."""
    monkeypatch.setattr(shutil, "which", lambda _: None)

    assert install.node() == "graphile-worker and pg-boss are skipped: npm is not on PATH"


def test_an_installation_that_fails_is_told_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half an environment would be measured otherwise."""
    place = tmp_path / "node_modules"
    manifest(place, "pg-boss", "12.35.0")
    monkeypatch.setattr(install, "NODE_MODULES", place)
    monkeypatch.setattr(shutil, "which", lambda _: "/bin/false")

    said = install.node()

    assert said.startswith("graphile-worker and pg-boss are skipped: Command '['/bin/false', 'ci', ")
    assert not place.exists()


def test_what_is_installed_is_installed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second run takes no time, until the lock changes."""
    place = tmp_path / "node_modules"
    place.mkdir()
    monkeypatch.setattr(install, "NODE_MODULES", place)
    monkeypatch.setattr(shutil, "which", lambda _: "/bin/npm")
    ran: list[object] = []
    monkeypatch.setattr(subprocess, "run", lambda *command, **_: ran.append(command))

    assert [install.node(), install.node()] == [
        "graphile-worker and pg-boss are installed now",
        "graphile-worker and pg-boss are installed",
    ]
    assert len(ran) == 1


def test_who_is_slow_is_given_fewer_events() -> None:
    """No drain takes long; a quick run is smaller still."""
    full, quick = Size(rounds=3, events=100_000), Size(rounds=3, events=20_000, quick=True)

    assert peers.events_for(TXOUTBOX, full) == 3 * TXOUTBOX.expected
    assert peers.events_for(TXOUTBOX, quick) == 20_000


def test_the_relay_and_the_peers_take_turns_and_who_cannot_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is not installed, one that fails at once, and one that works; the relay warms the emulator up."""
    works = table.Entrant(TXOUTBOX, "1", ("txoutbox",))
    fails = table.Entrant(PG_BOSS, "2", ("pg-boss",))
    absent = table.Entrant(table.PEERS[-1], missing="not installed")
    turns: list[str] = []

    def drained(_: Stand, entrant: table.Entrant, __: int, **___: bool) -> float:
        if entrant is fails:
            raise ContestError("it ended with code 1")
        turns.append(entrant.title)
        return 2.0

    def relay(*_: object) -> float:
        turns.append("relay")
        return 6.0

    monkeypatch.setattr(peers, "entrants", lambda: [works, fails, absent])
    monkeypatch.setattr(peers, "drain_peer", drained)
    monkeypatch.setattr(peers, "drain", relay)
    monkeypatch.setattr(peers, "warm_up", lambda *_: None)

    found = {figure.name: figure.skipped or figure.values for figure in peers.measure(STAND, Size(2, 10))}

    assert found == {
        "pg-boss 2 (Node)": "it does not work here: it ended with code 1",
        "procrastinate (Python)": "not installed",
        "relay": (6.0, 6.0),
        "txoutbox 1 (Python)": (2.0, 2.0),
    }
    assert turns == ["txoutbox 1 (Python)", "relay", "relay", *["txoutbox 1 (Python)"] * 2, "relay"]


def test_events_are_as_large_as_those_of_the_relay() -> None:
    """400 bytes of data in an envelope of 565, with six attributes; portions of 1,000."""
    sizes = [len(events) for events in bulks(2_001)]
    (event,) = next(bulks(1))

    assert sizes == [1_000, 1_000, 1]
    assert (len(event.body), len(json.dumps(json.loads(event.body)["data"]))) == (565, 400)
    assert sorted(event.attributes) == [
        "aggregate_id", "aggregate_type", "created_at", "event_id", "event_type", "sequence",
    ]  # fmt: skip
