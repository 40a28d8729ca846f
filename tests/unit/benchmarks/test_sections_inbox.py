"""The section about the inbox: who is measured, in which order, and who cannot be."""

from pathlib import Path

import pytest

from benchmarks.contest import ContestError
from benchmarks.figures import Size
from benchmarks.peers import table
from benchmarks.sections import inbox
from benchmarks.stand import Plain, Stand

STAND = Stand("postgresql://u:p@127.0.0.1:1/postgres", "127.0.0.1:2", "an emulator", Plain(0))
PGQUEUER, PROCRASTINATE = (
    next(peer for peer in table.PEERS if peer.package == name) for name in ("pgqueuer", "procrastinate")
)


@pytest.mark.parametrize("package", table.JOBS)
def test_every_queue_has_a_program_of_its_own(package: str) -> None:
    """Beside the one that drains."""
    assert (table.HERE / f"{package}_jobs.py").exists()
    assert package in {peer.package for peer in table.PEERS}


def test_a_queue_is_started_by_the_environment_of_the_peers(tmp_path: Path) -> None:
    """One that is not installed there says how to get it."""
    metadata = tmp_path / "lib" / "python3.13" / "site-packages" / "pgqueuer-1.6.0.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text("Metadata-Version: 2.1\nName: pgqueuer\nVersion: 1.6.0\n", encoding="utf-8")

    installed, absent = table.workers(tmp_path)

    assert installed.command == (str(tmp_path / "bin" / "python"), "-m", "benchmarks.peers.pgqueuer_jobs")
    assert (absent.peer, absent.missing) == (PROCRASTINATE, "not installed: make bench-peers installs it")


def test_the_inbox_and_the_peers_take_turns_and_who_cannot_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that works, and one that fails at once; every other round goes the other way."""
    works, fails = table.Entrant(PGQUEUER, "1", ("pgqueuer",)), table.Entrant(PROCRASTINATE, "2", ("procrastinate",))
    turns: list[str] = []

    def ours(_: Stand, variant: inbox.Variant, many: int) -> inbox.Found:
        turns.append(variant.name)
        return {variant.name: float(many)}

    def theirs(_: Stand, entrant: table.Entrant, many: int) -> inbox.Found:
        if entrant is fails:
            raise ContestError("it ended with code 1")
        if many > inbox._TRIAL:
            turns.append(entrant.peer.package)
        return {f"pgqueuer 1, {inbox.WORKED}": 4.0, f"pgqueuer 1, {inbox.STORED}": 2.0}

    monkeypatch.setattr(inbox, "workers", lambda: [works, fails])
    monkeypatch.setattr(inbox, "_ours", ours)
    monkeypatch.setattr(inbox, "_theirs", theirs)

    found = {figure.name: figure.skipped or figure.values for figure in inbox.measure(STAND, Size(2, 10))}

    names = [variant.name for variant in inbox.VARIANTS]
    assert found == {
        "procrastinate 2": "it does not work here: it ended with code 1",
        **{variant.name: (float(variant.deliveries),) * 2 for variant in inbox.VARIANTS},
        "pgqueuer 1, worked off": (4.0, 4.0),
        "pgqueuer 1, with storing": (2.0, 2.0),
    }
    assert turns == ["pgqueuer", *names, *reversed(names), "pgqueuer"]


def test_a_quick_run_has_fewer_deliveries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter, and enough for several batches."""
    monkeypatch.setattr(inbox, "workers", list)
    monkeypatch.setattr(inbox, "_ours", lambda _, variant, many: {variant.name: float(many)})

    asked = [figure.values for figure in inbox.measure(STAND, Size(1, 10, quick=True))]

    assert asked == [(max(500.0, variant.deliveries // 4),) for variant in inbox.VARIANTS]
