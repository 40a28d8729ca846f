"""A handler makes a file once; what is whole already short-circuits the work."""

import asyncio
import hashlib
import os
import threading
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from consumers import Classification, Context, Done, FatalError, Received
from consumers.artifacts import ArtifactStore
from consumers.events import ArtifactReused, ArtifactUploaded
from consumers.notes import Reused, Uploaded
from consumers.storage.files import FileTarget
from consumers.testing import Fate, handle, in_memory
from idempotency import LeaseLostError
from tests.unit.consumers.notebooks import Book, consumer_of, keep_history

NAME = "clips/42.mp4"
DATA = b"moving pictures"
SHA256 = hashlib.sha256(DATA).hexdigest()


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where scratch directories are."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    return tmp_path / "temporary" / "outbox-scratch"


@pytest.fixture
def media(tmp_path: Path) -> Path:
    """Where artifacts go."""
    return tmp_path / "media"


@pytest.fixture
async def book(monkeypatch: pytest.MonkeyPatch) -> Book:
    """The history of whatever is handled."""
    return keep_history(monkeypatch)


def names(folder: Path) -> set[str]:
    """The files that are there, but for the lock."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} - {"clips/.artifacts.lock"}


class Maker:
    """Handlers that make a clip, in the loop and in a thread."""

    def __init__(self, store: Any, data: bytes | None = DATA) -> None:
        self.store = store
        self.data = data
        self.error: Exception | None = None
        self.made = 0
        self.told: list[tuple[str, int | None, str | None]] = []

    def make(self, path: Path) -> None:
        """The work itself."""
        self.made += 1
        if self.data is not None:
            path.write_bytes(self.data)
        if self.error is not None:
            raise self.error

    async def in_loop(self, _: Received[Any], ctx: Context) -> Done:
        """As an asynchronous handler does it."""
        async with ctx.artifact(NAME, store=self.store) as clip:
            if clip.needed:
                self.make(clip.path)
        self.told.append((clip.location, clip.bytes, clip.sha256))
        return Done(clip.location)

    def in_thread(self, _: Received[Any], ctx: Context) -> Done:
        """As a plain function does it."""
        with ctx.artifact(NAME, store=self.store) as clip:
            if clip.needed:
                self.make(clip.path)
        self.told.append((clip.location, clip.bytes, clip.sha256))
        return Done(clip.location)


@pytest.mark.parametrize("way", ["in_loop", "in_thread"])
async def test_what_was_made_is_stored_and_made_no_second_time(way: str, media: Path, root: Path, book: Book) -> None:
    maker = Maker(str(media))
    async with in_memory(consumer_of(getattr(maker, way))) as deliveries:
        for _ in range(3):
            assert (await deliveries.finish(deliveries.publish("a"))).fate is Fate.DONE
        told = [event for event in deliveries.events if isinstance(event, ArtifactUploaded | ArtifactReused)]
    location = f"file://{media}/{NAME}"
    assert (maker.made, maker.told) == (1, [(location, len(DATA), SHA256)] * 3)
    assert (media / NAME).read_bytes() == DATA
    assert book.notes == [
        Uploaded(NAME, location, len(DATA), SHA256),
        Reused(NAME, location, len(DATA), SHA256),
        Reused(NAME, location, len(DATA), SHA256),
    ]
    assert [(note.what, note.detail["sha256"]) for note in book.notes] == [
        ("uploaded", SHA256),
        ("reused", SHA256),
        ("reused", SHA256),
    ]
    assert [(type(event), event.artifact, event.bytes) for event in told] == [
        (ArtifactUploaded, NAME, len(DATA)),
        (ArtifactReused, NAME, len(DATA)),
        (ArtifactReused, NAME, len(DATA)),
    ]
    assert names(media) == {NAME, f"{NAME}.manifest.json"}
    assert names(root) == set()


@pytest.mark.parametrize("way", ["in_loop", "in_thread"])
async def test_objects_are_artifacts_too(way: str) -> None:
    maker = Maker(ArtifactStore(f"memory://{uuid4().hex}"))
    async with in_memory(consumer_of(getattr(maker, way))) as deliveries:
        for _ in range(2):
            assert (await deliveries.finish(deliveries.publish("a"))).fate is Fate.DONE
    assert (maker.made, [told[1:] for told in maker.told]) == (1, [(len(DATA), SHA256)] * 2)


@pytest.mark.parametrize("way", ["in_loop", "in_thread"])
@pytest.mark.parametrize("data", [b"", None])
async def test_an_empty_output_is_transient_and_stored_nowhere(way: str, data: bytes | None, media: Path) -> None:
    """Also where the consumer takes what it does not know for fatal."""
    maker = Maker(str(media), data)
    strict = Classification(retry_codes={"503"}, fatal_codes={"EMPTY_OUTPUT"})
    handled = await handle(consumer_of(getattr(maker, way), classification=strict), "a")
    assert (handled.fate, handled.code) == (Fate.RETRIED, "EMPTY_OUTPUT")
    assert not await asyncio.to_thread(media.exists)


@pytest.mark.parametrize("way", ["in_loop", "in_thread"])
async def test_what_failed_half_way_is_stored_nowhere(way: str, media: Path) -> None:
    maker = Maker(str(media))
    maker.error = FatalError("no codec", "NO_CODEC")
    handled = await handle(consumer_of(getattr(maker, way)), "a")
    assert (handled.fate, handled.code) == (Fate.DEAD, "NO_CODEC")
    assert not await asyncio.to_thread(media.exists)


async def test_what_was_uploaded_without_its_manifest_is_made_again(media: Path) -> None:
    """The process was killed in between."""
    (media / "clips").mkdir(parents=True)
    (media / NAME).write_bytes(b"half")
    maker = Maker(str(media))
    assert (await handle(consumer_of(maker.in_loop), "a")).fate is Fate.DONE
    assert (maker.made, (media / NAME).read_bytes()) == (1, DATA)


async def test_a_store_that_fails_is_the_handlers_failure_and_its_place_is_not_told(media: Path) -> None:
    await asyncio.to_thread(media.write_text, "a file")
    handled = await handle(consumer_of(Maker(str(media)).in_loop), "a")
    assert (handled.fate, handled.code) == (Fate.RETRIED, "NotADirectoryError")
    assert str(media) not in str(handled.error)


async def test_cancelled_in_the_middle_no_half_counts_as_whole(media: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does the upload go on for nobody."""
    began, go, over = threading.Event(), threading.Event(), threading.Event()
    publish = FileTarget.publish

    def slowly(self: FileTarget, name: str, file: Path, check: Any) -> Any:
        def late() -> None:
            began.set()
            go.wait(10)
            check()

        try:
            return publish(self, name, file, late)
        finally:
            over.set()

    monkeypatch.setattr(FileTarget, "publish", slowly)
    maker = Maker(str(media))
    async with in_memory(consumer_of(maker.in_loop, timeout="5s")) as deliveries:
        event = deliveries.publish("a")
        await deliveries.advance(0)
        await asyncio.to_thread(began.wait, 10)
        await deliveries.advance(6)
        settled = await deliveries.wait_for(event)
        assert settled.code == "TIMEOUT"
        go.set()
        await asyncio.to_thread(over.wait, 10)
        assert names(media) == set()
        assert (await deliveries.finish(event)).fate is Fate.DONE
    assert (maker.made, (media / NAME).read_bytes()) == (2, DATA)


async def test_of_two_that_are_made_at_once_one_is_kept_and_both_say_which(media: Path, book: Book) -> None:
    maker, together = Maker(str(media)), asyncio.Barrier(2)

    async def work(event: Received[Any], ctx: Context) -> None:
        async with ctx.artifact(NAME, store=maker.store) as clip:
            clip.path.write_bytes(event.data.encode())
            await together.wait()
        maker.told.append((clip.location, clip.bytes, clip.sha256))

    async with in_memory(consumer_of(work)) as deliveries:
        events = [deliveries.publish("a", "one"), deliveries.publish("a", "other")]
        for event in events:
            assert (await deliveries.finish(event)).fate is Fate.DONE
    assert maker.told[0] == maker.told[1]
    assert maker.told[0][2] == hashlib.sha256((media / NAME).read_bytes()).hexdigest()
    assert sorted(note.what for note in book.notes) == ["reused", "uploaded"]


@pytest.mark.parametrize("name", ["../42.mp4", "/etc/passwd", "clips/../../42.mp4", "a\0b", "", None])
async def test_no_name_leads_out_of_the_store(name: Any, media: Path) -> None:
    async def work(event: Received[Any], ctx: Context) -> None:
        ctx.artifact(name, store=str(media))

    handled = await handle(consumer_of(work), "a")
    assert handled.code == "UsageError"
    assert "etc" not in str(handled.error)


@pytest.mark.parametrize("output", ["folder", "link"])
async def test_what_is_no_file_is_refused(output: str, media: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")

    async def work(event: Received[Any], ctx: Context) -> None:
        async with ctx.artifact(NAME, store=str(media)) as clip:
            if output == "folder":
                clip.path.mkdir()
            else:
                clip.path.symlink_to(tmp_path / "secret")

    handled = await handle(consumer_of(work), "a")
    assert (handled.code, "write one file there" in str(handled.error)) == ("UsageError", True)
    assert not await asyncio.to_thread(media.exists)


async def test_the_path_keeps_its_ending_and_is_in_the_scratch_directory(media: Path) -> None:
    """Encoders go by it."""
    seen: list[tuple[Path, Path]] = []

    async def work(event: Received[Any], ctx: Context) -> None:
        async with ctx.artifact(NAME, store=str(media)) as clip, ctx.artifact("42.mp4", store=str(media)) as other:
            seen.append((clip.path, ctx.scratch.directory))
            assert clip.path != other.path
            assert (clip.bytes, clip.sha256) == (None, None)
            clip.path.write_bytes(DATA)
            other.path.write_bytes(DATA)

    assert (await handle(consumer_of(work), "a")).fate is Fate.DONE
    assert (seen[0][0].name, seen[0][0].is_relative_to(seen[0][1])) == ("42.mp4", True)


async def test_work_that_was_done_in_vain_goes_nowhere(media: Path) -> None:
    """A handler that does not ask whether it is needed costs time, and nothing else."""

    async def work(event: Received[Any], ctx: Context) -> None:
        async with ctx.artifact(NAME, store=str(media)) as clip:
            clip.path.write_bytes(event.data.encode())

    async with in_memory(consumer_of(work)) as deliveries:
        for data in ("first", "second"):
            assert (await deliveries.finish(deliveries.publish("a", data))).fate is Fate.DONE
    assert (media / NAME).read_bytes() == b"first"


@pytest.mark.parametrize("way", ["in_loop", "in_thread"])
async def test_a_delivery_that_is_lost_says_so_when_the_artifact_is_whole(way: str, media: Path, book: Book) -> None:
    """The next attempt finds it."""
    book.fault = LeaseLostError("somebody else has it")
    maker = Maker(str(media))
    assert (await handle(consumer_of(getattr(maker, way)), "a")).code == "LeaseLostError"
    book.fault = None
    assert (await handle(consumer_of(getattr(maker, way)), "a")).fate is Fate.DONE
    assert maker.made == 1


async def test_in_the_loop_without_await_it_is_refused(media: Path) -> None:
    async def work(event: Received[Any], ctx: Context) -> None:
        with ctx.artifact(NAME, store=str(media)):
            pass

    handled = await handle(consumer_of(work), "a")
    assert (handled.code, "async with ctx.artifact" in str(handled.error)) == ("UsageError", True)


async def test_without_a_thread_it_is_transient(media: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    handled = await handle(consumer_of(Maker(str(media)).in_loop), "a")
    assert (handled.fate, handled.code) == (Fate.RETRIED, "NO_THREAD")


async def test_a_stage_around_it_names_what_failed(media: Path) -> None:
    async def work(event: Received[Any], ctx: Context) -> None:
        async with ctx.stage("encode"), ctx.artifact(NAME, store=str(media)):
            pass

    handled = await handle(consumer_of(work), "a")
    assert (handled.code, handled.reason.startswith("failed at stage encode: ")) == ("EMPTY_OUTPUT", True)


async def test_nothing_blocks_the_loop(media: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks and uploads are made in threads."""
    where: list[str] = []
    for name in ("look", "publish"):
        real = getattr(FileTarget, name)

        def watched(self: FileTarget, *given: Any, real: Any = real) -> Any:
            where.append(threading.current_thread().name)
            return real(self, *given)

        monkeypatch.setattr(FileTarget, name, watched)
    assert (await handle(consumer_of(Maker(str(media)).in_loop), "a")).fate is Fate.DONE
    assert where
    assert threading.main_thread().name not in where


async def test_a_disk_that_is_full_says_so(media: Path, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    def full(_: int) -> None:
        raise OSError(28, os.strerror(28), str(root))

    monkeypatch.setattr(os, "fsync", full)
    handled = await handle(consumer_of(Maker(str(media)).in_loop), "a")
    assert (handled.fate, handled.code) == (Fate.RETRIED, "OSError")
    assert "No space left" in handled.reason
    assert str(root) not in handled.reason
