"""Each attempt has a directory of its own: no name leads out of it, and nothing of it is left."""

import asyncio
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from consumers import Context, Received, TransientError, UsageError
from consumers.events import ScratchLeft, StartWarning
from consumers.outside import Outside
from consumers.runtime import Runtime
from consumers.scratch import Scratch, Scratches
from consumers.testing import Fate, in_memory
from relay.kernel.failure import sentence
from tests.support.commands import ROOT
from tests.unit.consumers.companions import FakeDeadLetters, FakeSource, WarningDedup
from tests.unit.consumers.notebooks import consumer_of

TWO_DAYS = 2 * 24 * 3_600


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the temporary files of this test are, and so the scratch directories of what it runs."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path / "outbox-scratch"


@pytest.fixture
def scratch(tmp_path: Path) -> Scratch:
    """A directory, beside what is nobody's business."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "own").mkdir()
    return Scratch(tmp_path / "own")


def aged(path: Path) -> Path:
    """As if nobody had touched it for long."""
    then = path.stat().st_mtime - TWO_DAYS
    os.utime(path, (then, then))
    return path


async def until(so: Callable[[], bool]) -> None:
    """Wait for what happens in another thread."""
    async with asyncio.timeout(10):
        while not so():  # noqa: ASYNC110 -- a file system has no events
            await asyncio.sleep(0.001)


class TestPath:
    """Where a file is to be."""

    @pytest.mark.parametrize(
        "name", ["a.mp4", "a/b/c.mp4", PurePosixPath("a/b"), "./a", "a//b", "..a/b..", "~/a", "ä/ß"]
    )
    def test_is_within_and_its_folder_is_there(self, scratch: Scratch, name: str) -> None:
        path = scratch.path(name)
        path.write_text("x")
        assert path.is_relative_to(scratch.directory)

    @pytest.mark.parametrize(
        "name",
        [
            "",
            ".",
            "./.",
            "..",
            "../secret/a",
            "a/../../secret/a",
            "a/../b",
            "/secret/a",
            "//secret/a",
            "secret\0/a",
            "secret\n/a",
            "secret/\ud800",
            "secret\x7f",
            b"secret",
            None,
            7,
            PurePosixPath("/secret/a"),
        ],
    )
    def test_does_not_leave_it_and_no_error_says_where_it_led(self, scratch: Scratch, name: Any) -> None:
        with pytest.raises(UsageError) as refusal:
            scratch.path(name)
        assert "secret" not in str(refusal.value)
        assert "name a file like frames/1.png" in str(refusal.value)
        assert list(scratch.directory.iterdir()) == []

    @pytest.mark.parametrize("to", ["../secret", "..", "/", "../gone/for/good"])
    def test_does_not_follow_a_link_out_of_it(self, scratch: Scratch, to: str) -> None:
        (scratch.directory / "link").symlink_to(to)
        (scratch.directory / "over").symlink_to("link/deeper")
        for name in ("link", "link/a", "over", "over/a"):
            with pytest.raises(UsageError, match="symbolic link") as refusal:
                scratch.path(name)
            assert "secret" not in str(refusal.value)

    def test_does_not_lead_round_and_round(self, scratch: Scratch) -> None:
        (scratch.directory / "loop").symlink_to("loop")
        with pytest.raises(OSError, match="loop"):
            scratch.path("loop/a")

    def test_follows_a_link_that_stays(self, scratch: Scratch) -> None:
        scratch.path("real/a").write_text("x")
        (scratch.directory / "link").symlink_to("real")
        assert scratch.path("link/a").read_text() == "x"


class TestRemoval:
    """Nothing is left."""

    def test_takes_what_nobody_may_write_to_and_follows_no_link(self, scratch: Scratch, tmp_path: Path) -> None:
        (tmp_path / "secret" / "kept").write_text("x")
        scratch.path("locked/deeper/a").write_text("x")
        (scratch.directory / "locked" / "link").symlink_to("../../secret")
        (scratch.directory / "locked" / "deeper").chmod(0)
        (scratch.directory / "locked").chmod(0o500)
        scratch.remove()
        assert not scratch.directory.exists()
        assert (tmp_path / "secret" / "kept").exists()
        scratch.remove()

    def test_that_fails_says_why_and_not_where(
        self, scratch: Scratch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(path: Path) -> None:
            raise PermissionError(13, "Permission denied", str(path))

        monkeypatch.setattr(shutil, "rmtree", refuse)
        with pytest.raises(PermissionError) as refusal:
            scratch.remove()
        assert str(tmp_path) not in str(refusal.value)
        assert sentence(refusal.value).endswith("the scratch directory could not be removed: Permission denied")


@pytest.mark.parametrize(
    ("in_thread", "end"),
    [
        (False, "returns"),
        (False, "raises"),
        (False, "times out"),
        (False, "is stopped"),
        (True, "returns"),
        (True, "raises"),
    ],
)
async def test_however_an_attempt_ends_its_directory_is_gone(root: Path, end: str, *, in_thread: bool) -> None:
    seen: list[Path] = []

    def use(event: Received[Any], ctx: Context) -> None:
        seen.append(ctx.scratch.directory)
        ctx.scratch.path("a/b").write_text("x")
        if end == "raises":
            raise OSError("no")

    async def work(event: Received[Any], ctx: Context) -> None:
        use(event, ctx)
        if end in ("times out", "is stopped"):
            await asyncio.Event().wait()

    async with in_memory(consumer_of(use if in_thread else work, timeout="5s")) as deliveries:
        event = deliveries.publish("a")
        await deliveries.advance(6 if end == "times out" else 1)
        if end != "is stopped":
            await deliveries.wait_for(event)
            assert seen[0].parent.parent == root
    assert len(seen) == 1
    left = await asyncio.to_thread(lambda: list(root.iterdir()))
    assert left == []


async def test_each_attempt_has_its_own(root: Path) -> None:
    seen: list[Path] = []

    async def work(event: Received[Any], ctx: Context) -> None:
        assert ctx.scratch is ctx.scratch
        assert list(ctx.scratch.directory.iterdir()) == []
        seen.append(ctx.scratch.path("a"))
        seen[-1].write_text("x")
        if ctx.attempt == 1:
            raise OSError("no")

    async with in_memory(consumer_of(work)) as deliveries:
        assert (await deliveries.finish(deliveries.publish("a"))).attempt == 2
    assert len(set(seen)) == 2


async def test_what_does_not_ask_for_one_has_none(root: Path) -> None:
    async def work(event: Received[Any], ctx: Context) -> None:
        """Nothing."""

    async with in_memory(consumer_of(work)) as deliveries:
        await deliveries.finish(deliveries.publish("a"))
    assert not await asyncio.to_thread(root.exists)


async def test_a_thread_that_was_abandoned_keeps_its_directory_until_it_ends(root: Path) -> None:
    seen: list[Path] = []
    began, go, over = threading.Event(), threading.Event(), threading.Event()

    def work(event: Received[Any], ctx: Context) -> None:
        seen.append(ctx.scratch.path("a"))
        began.set()
        try:
            go.wait(10)
            seen[0].write_text("x")
        finally:
            over.set()

    async with in_memory(consumer_of(work, timeout=None)) as deliveries:
        deliveries.publish("a")
        await asyncio.to_thread(began.wait, 10)
        abandoned = await deliveries.stop()
    assert len(abandoned) == 1
    assert seen[0].parent.is_dir()
    go.set()
    await asyncio.to_thread(over.wait, 10)
    await until(lambda: not seen[0].parent.exists())


async def test_a_directory_that_cannot_be_removed_is_told_of(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Scratch) -> None:
        raise PermissionError(13, "Permission denied")

    async def work(event: Received[Any], ctx: Context) -> None:
        ctx.scratch.path("a").write_text("x")

    monkeypatch.setattr(Scratch, "remove", refuse)
    async with in_memory(consumer_of(work)) as deliveries:
        assert (await deliveries.finish(deliveries.publish("a"))).fate is Fate.DONE
        await deliveries.advance(0)
        assert [type(event) for event in deliveries.events if isinstance(event, ScratchLeft)] == [ScratchLeft]


class TestScratches:
    """Those of one consumer in a process."""

    def test_are_for_their_owner_alone(self, tmp_path: Path) -> None:
        scratches = Scratches(tmp_path / "deep" / "root")
        directory = scratches.open("e-1").directory
        assert directory.name.startswith("e-1-")
        assert all(
            path.stat().st_mode & 0o077 == 0 for path in (directory, directory.parent, tmp_path / "deep" / "root")
        )

    def test_are_made_anew_when_somebody_tidies_up(self, tmp_path: Path) -> None:
        scratches = Scratches(tmp_path / "root")
        scratches.open("e-1")
        shutil.rmtree(tmp_path / "root")
        assert scratches.open("e-2").directory.is_dir()

    def test_that_cannot_be_had_are_transient_and_the_error_does_not_say_where(self, tmp_path: Path) -> None:
        (tmp_path / "root").write_text("a file")
        with pytest.raises(TransientError, match="see SCRATCH_DIR") as refusal:
            Scratches(tmp_path / "root").open("e-1")
        assert str(tmp_path) not in str(refusal.value)
        assert refusal.value.code == "EEXIST"

    def test_are_not_put_into_a_directory_of_somebody_else(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "root").mkdir()
        monkeypatch.setattr(os, "geteuid", lambda: (tmp_path / "root").stat().st_uid + 1)
        if (tmp_path / "root").stat().st_uid == 0:
            os.chown(tmp_path / "root", 12_345, -1)
        with pytest.raises(TransientError, match="belongs to another user"):
            Scratches(tmp_path / "root").open("e-1")

    def test_that_are_in_use_outlast_the_close(self, tmp_path: Path) -> None:
        scratches = Scratches(tmp_path)
        scratch = scratches.open("e-1")
        scratches.close()
        aged(scratch.directory.parent)
        Scratches(tmp_path).sweep()
        assert scratch.directory.is_dir()
        scratch.remove()
        scratches.close()
        scratches.close()
        assert list(tmp_path.iterdir()) == []


class TestSweep:
    """What dead processes have left."""

    def test_takes_what_is_old_and_nobodys(self, tmp_path: Path) -> None:
        program = (
            "from pathlib import Path; import os, sys; from consumers.scratch import Scratches\n"
            "print(Scratches(Path(sys.argv[1])).open('e-1').directory, flush=True); sys.stdin.read(); os._exit(9)"
        )
        command = [sys.executable, "-c", program, str(tmp_path)]
        with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
            assert owner.stdout
            left = Path(owner.stdout.readline().strip())
            aged(left.parent)
            Scratches(tmp_path).sweep()
            assert left.is_dir()
            owner.communicate("", timeout=20)
        os.utime(left.parent)
        Scratches(tmp_path).sweep()
        assert left.is_dir()
        aged(left.parent)
        Scratches(tmp_path).sweep()
        assert list(tmp_path.iterdir()) == []

    def test_leaves_what_is_not_ours(self, tmp_path: Path) -> None:
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "7-abcdefgh").symlink_to("elsewhere")
        for name in ("notes", "7-ABC", "77"):
            (tmp_path / name).mkdir()
            aged(tmp_path / name)
        aged(tmp_path / "elsewhere")
        Scratches(tmp_path).sweep()
        assert {path.name for path in tmp_path.iterdir()} == {"elsewhere", "7-abcdefgh", "notes", "7-ABC", "77"}

    def test_takes_what_never_had_an_owner(self, tmp_path: Path) -> None:
        (tmp_path / "7-abcdefgh").mkdir()
        aged(tmp_path / "7-abcdefgh")
        Scratches(tmp_path).sweep()
        assert list(tmp_path.iterdir()) == []

    def test_has_nothing_to_do_where_there_never_was_any(self, tmp_path: Path) -> None:
        Scratches(tmp_path / "none").sweep()
        assert list(tmp_path.iterdir()) == []

    async def test_is_made_at_the_start_and_its_failure_is_a_warning(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "7-abcdefgh").mkdir()
        aged(tmp_path / "7-abcdefgh")
        events: list[object] = []
        await _run(tmp_path, events, lambda: not list(tmp_path.iterdir()))

        (tmp_path / "7-abcdefgh").mkdir()
        aged(tmp_path / "7-abcdefgh")

        def refuse(self: Scratch) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Scratch, "remove", refuse)
        warnings: list[object] = []
        await _run(tmp_path, warnings, lambda: bool(_warnings(warnings)))
        assert _warnings(events) == []
        (warning,) = _warnings(warnings)
        assert "what dead processes have left" in warning
        assert str(tmp_path) not in warning


def _warnings(events: list[object]) -> list[str]:
    return [event.sentence for event in events if isinstance(event, StartWarning) and event.sentence != "careful"]


async def _run(root: Path, events: list[object], so: Callable[[], bool]) -> None:
    """Start a consumer, and end it when that is so."""
    outside = Outside(
        source=FakeSource("media"),
        dedup=WarningDedup(),
        dead_letters=FakeDeadLetters(),
        observe=events.append,
        scratch_root=root,
        sweeps=True,
    )
    stopping = asyncio.Event()
    consumer = consumer_of(lambda _: None)
    running = asyncio.create_task(Runtime(consumer, outside).run(stopping, 1.0))
    await until(so)
    stopping.set()
    await running
