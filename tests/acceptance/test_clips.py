"""The example of clips, as `make example NAME=clips` runs it, and with its workers and encoders killed."""

import asyncio
import hashlib
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from examples.clips.__main__ import CONSUMER, SETTINGS
from examples.clips.cutting import encode
from examples.clips.request import request
from examples.programs import equipped
from tests.support.commands import ROOT
from tests.support.mortal import Mortal
from tests.support.waiting import until

SHORT = {
    **SETTINGS,
    "INBOX_LEASE_MS": "1500ms",
    "INBOX_HEARTBEAT_MS": "500ms",
    "INBOX_RETRY_BASE_MS": "100ms",
    "INBOX_MAX_ATTEMPTS": "10",
}
MOST_LINES = 199
ATTEMPT = r"processing( stage| stage_ended| progress| uploaded| reused)*"
STORY = re.compile(rf"created( {ATTEMPT} (requeued:stale|retry))* {ATTEMPT} done")
HALF_WAY = """
select locked_by from inbox_deliveries where state = 'processing' and stage = 'encode' and progress between 25 and 75
"""
BLOCKED = "select from pg_locks where relation = 'clips'::regclass and not granted"
UPLOADED = """
select delivery_id from inbox_history join inbox_deliveries as delivery on delivery.id = delivery_id
 where what = 'uploaded' and state = 'processing'
"""
# What may be said of a clip that is whole, until somebody finds that it is.
ONCE_MORE = ("stage_ended", "requeued:stale", "processing")
OPEN = "select from inbox_deliveries where state in ('pending', 'processing')"
FAILED = "select attributes ->> 'aggregate_id', error_code from inbox_deliveries where state = 'failed'"
STORIES = """
select delivery_id, string_agg(what, ' ' order by history.id)
  from inbox_history as history join inbox_deliveries as delivery on delivery.id = delivery_id
 where state = 'done' group by delivery_id
"""
Database = psycopg.Connection[tuple[Any, ...]]


@pytest.mark.slow("runs an example to its end")
def test_every_clip_is_whole_although_a_worker_is_killed() -> None:
    """The example says so, tells the story of a clip in its order, and ends as a program that succeeded."""
    done = subprocess.run(
        [sys.executable, "-m", "examples.clips"], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 of 3 clips are whole" in done.stdout
    story = [line.split()[2:] for line in done.stdout.splitlines() if line.startswith("history ")]
    for what in (
        ["created"],
        ["processing", "attempt=1"],
        ["stage", "stage=download"],
        ["stage", "stage=encode"],
        ["progress", "percent=50.0"],
        ["requeued:stale", "alone=false"],
        ["processing", "attempt=1"],
        ["stage", "stage=encode"],
        ["progress", "percent=100.0"],
        ["stage", "stage=upload"],
        ["uploaded", "artifact=clip-0.mp4"],
        ["done"],
    ):
        while not set(what) <= set(story[0]):
            story.pop(0)
            assert story, f"nothing says {what} there: {done.stdout}"


@pytest.mark.slow("kills the processes of an example for seconds")
def test_every_clip_is_whole_whoever_is_killed(inbox_database: str, tmp_path: Path) -> None:
    """Encoders die, and workers while they encode and between upload and completion; no half is ever to be seen."""
    store = tmp_path / "store"
    settings = {**SHORT, "CLIPS_STORE": str(store), "SCRATCH_DIR": str(tmp_path / "scratch")}
    environment = equipped(inbox_database, "clips", **settings)
    with (
        psycopg.connect(inbox_database, autocommit=True) as database,
        Mortal.running(environment, CONSUMER, tmp_path / "one.log") as one,
        Mortal.running(environment, CONSUMER, tmp_path / "other.log") as other,
    ):

        def sees(condition: Callable[[], bool], what: str) -> None:
            until(lambda: _all_whole(store, wanted) and condition(), f"{what}: {one.said}{other.said}")

        _requested(inbox_database, tmp_path, {"nothing": 0})
        wanted = _requested(inbox_database, tmp_path, {"a": 8, "b": 8, "c": 20})
        sees(lambda: _encoder_died(database, one, other), "an encoder dies")
        wanted |= _requested(inbox_database, tmp_path, {"d": 20})
        left_over: list[psutil.Process] = []
        sees(lambda: _dies_half_way(database, left_over, one, other), "a worker dies while it encodes")
        with psycopg.connect(inbox_database) as blocking:
            blocking.execute("lock table clips in share mode")
            wanted |= _requested(inbox_database, tmp_path, {"e": 4})
            sees(lambda: len(database.execute(BLOCKED).fetchall()) > 0, "a clip is uploaded, and not completed")
            uploaded = {delivery for (delivery,) in database.execute(UPLOADED).fetchall()}
            one.die()
            other.die()
        sees(lambda: len(database.execute("select from clips").fetchall()) == len(wanted), "all are done")

        hashes = {clip: hashlib.sha256(content).hexdigest() for clip, content in wanted.items()}
        assert dict(database.execute("select clip, sha256 from clips").fetchall()) == hashes
        assert {clip: hashlib.sha256((store / f"{clip}.mp4").read_bytes()).hexdigest() for clip in wanted} == hashes
        until(lambda: len(database.execute(OPEN).fetchall()) == 0, "all deliveries are over")
        assert database.execute(FAILED).fetchall() == [("nothing", "NO_FILM")]
        until(lambda: not any(map(_lives, left_over)), "encoders end when nobody reads what they say")
        stories: dict[int, str] = dict(database.execute(STORIES).fetchall())
        assert [story for story in stories.values() if not STORY.fullmatch(story)] == []
        assert any("requeued:stale" in story for story in stories.values())
        assert uploaded
        for delivery in uploaded:
            _, _, rest = stories[delivery].partition("uploaded ")
            assert {"reused", "done"} <= set(rest.split()) <= {*ONCE_MORE, "reused", "done"}


async def test_an_encoder_ends_with_its_handler(tmp_path: Path) -> None:
    """A worker that is stopped, or has lost its lease, leaves none behind."""
    film, begun = tmp_path / "film.mov", asyncio.Event()
    film.write_bytes(b"." * 1024 * 1000)
    work = asyncio.create_task(encode(film, tmp_path / "film.mp4", lambda _: begun.set()))
    await begun.wait()
    (encoder,) = (child for child in psutil.Process().children() if str(film) in child.cmdline())
    work.cancel()
    await asyncio.wait([work])
    assert work.cancelled()
    assert not _lives(encoder)


def test_a_clip_is_asked_for_once(
    inbox_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The service's script says the same event for the same clip."""
    script = str(ROOT / "examples" / "clips" / "request.py")
    monkeypatch.setenv("DATABASE_URL", inbox_database)
    for clip in ("spring", "spring", "autumn"):
        monkeypatch.setattr(sys, "argv", [script, clip, str(tmp_path / "film.mov")])
        runpy.run_path(script, run_name="__main__")
    first, again, another = capsys.readouterr().out.split()
    assert first == again != another


def test_the_example_is_short() -> None:
    """An example that takes longer to read than the page about it helps nobody."""
    sources = (ROOT / "examples" / "clips").glob("*.py")
    assert sum(len(source.read_text().splitlines()) for source in sources) <= MOST_LINES


def _requested(url: str, folder: Path, frames: dict[str, int]) -> dict[str, bytes]:
    """Ask for clips of so many frames; answer with what is to be in them."""
    wanted = {}
    with psycopg.connect(url) as service:
        for clip, number in frames.items():
            film = [f"{clip}{frame}".encode().ljust(1024, b".") for frame in range(number)]
            source = folder / f"{clip}.mov"
            source.write_bytes(b"".join(film))
            request(service, clip, source)
            wanted[clip] = b"".join(hashlib.sha256(frame).digest() * 1024 for frame in film)
    return wanted


def _all_whole(store: Path, wanted: dict[str, bytes]) -> bool:
    """What is visible in the store is a whole clip, or what is told of one."""
    for file in store.glob("[!.]*"):
        clip, _, kind = file.name.partition(".")
        assert kind in {"mp4", "mp4.manifest.json"}
        assert kind != "mp4" or file.stat().st_size == len(wanted[clip])
    return True


def _encoder_died(database: Database, *workers: Mortal) -> bool:
    """Whether a worker has noticed; until then whichever encoder there is dies."""
    if database.execute("select from inbox_history where detail ->> 'code' = 'ENCODER_FAILED'").fetchall():
        return True
    for worker in workers:
        for child in psutil.Process(worker.pid).children():
            with suppress(psutil.NoSuchProcess):  # it may end just now
                child.kill()
    return False


def _dies_half_way(database: Database, left_over: list[psutil.Process], *workers: Mortal) -> bool:
    """Whether somebody was in the middle of an encode, and was killed; its encoders are left over."""
    for (owner,) in database.execute(HALF_WAY).fetchall():
        for worker in workers:
            if f":{worker.pid}:" in owner:
                left_over += psutil.Process(worker.pid).children()
                worker.die()
                return True
    return False


def _lives(process: psutil.Process) -> bool:
    return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
