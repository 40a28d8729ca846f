"""Google's emulator is taken where it and Java are, with as much memory as the machine has to spare."""

import shutil
from pathlib import Path

import pytest

from benchmarks import google, machine
from relay.dev.sandbox import Sandbox

JAR = "platform/pubsub-emulator/lib/cloud-pubsub-emulator-0.8.20-all.jar"


@pytest.fixture
def cloud_sdk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the emulator in it, as gcloud lays it out."""
    jar = tmp_path / JAR
    jar.parent.mkdir(parents=True)
    jar.touch()
    monkeypatch.setattr(google, "_ROOTS", (str(tmp_path),))
    return tmp_path


@pytest.mark.parametrize(("java", "found"), [("/usr/bin/java", True), (None, False)])
def test_it_is_there_where_java_is_too(
    cloud_sdk: Path, monkeypatch: pytest.MonkeyPatch, java: str | None, *, found: bool
) -> None:
    """Without Java its file is of no use."""
    monkeypatch.setattr(shutil, "which", {"java": java}.get)

    assert google.jar() == (cloud_sdk / JAR if found else None)


def test_it_leaves_memory_to_others() -> None:
    """A third is the most that it takes, and 8 GB are enough."""
    assert [google.heap_mb(gigabytes * 2**30) for gigabytes in (6, 24, 64)] == [2_048, 8_192, 8_192]


@pytest.mark.parametrize(
    ("gigabytes", "said"),
    [(24, "Google's emulator, 0.8.20"), (6, "Google's emulator, 0.8.20, with a heap of only 2048 MB")],
)
def test_too_little_memory_is_told(gigabytes: int, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It collects garbage for most of the time then, and the figures are its own."""
    monkeypatch.setattr(machine, "memory", lambda: gigabytes * 2**30)

    with Sandbox() as sandbox:
        assert google.GooglePubSub(sandbox, Path(JAR)).words == said
