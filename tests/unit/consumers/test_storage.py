"""An artifact is whole or it is not there, whoever is killed, cancelled or late, and wherever it is kept."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

from consumers import ConfigurationError, TransientError, UsageError
from consumers.artifacts import ArtifactStore
from consumers.storage.files import FileTarget
from consumers.storage.manifest import Whole, read, written
from consumers.storage.objects import ObjectTarget
from consumers.storage.store import name_of
from consumers.storage.target import Published, Target
from tests.support.commands import ROOT

NAME = "clips/42.mp4"
MANIFEST = f"{NAME}.manifest.json"


class StoppedError(Exception):
    """The upload is to go no further."""


def whole_of(data: bytes) -> Whole:
    """What a manifest says of these bytes."""
    return Whole(len(data), hashlib.sha256(data).hexdigest())


def never() -> None:
    """Go on."""


class Place:
    """A store, with a look behind it."""

    def __init__(self, store: ArtifactStore, folder: Path) -> None:
        self.store = store
        self.target: Target = store.target
        self._folder = folder

    def publish(self, data: bytes, check: Callable[[], None] = never, name: str = NAME) -> Published:
        """Store these bytes."""
        file = self._folder / uuid4().hex
        file.write_bytes(data)
        return self.target.publish(name, file, check)

    def bytes_at(self, name: str) -> bytes | None:
        """What is there."""
        raise NotImplementedError

    def put(self, name: str, data: bytes) -> None:
        """Put it there, as something that died would have left it."""
        raise NotImplementedError

    def names(self) -> set[str]:
        """All that is there."""
        raise NotImplementedError


class Directory(Place):
    """Files."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "store"
        super().__init__(ArtifactStore(f"file://{self.root}"), folder)

    def bytes_at(self, name: str) -> bytes | None:
        path = self.root / name
        return path.read_bytes() if path.exists() else None

    def put(self, name: str, data: bytes) -> None:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_bytes(data)

    def names(self) -> set[str]:
        return {
            str(path.relative_to(self.root))
            for path in self.root.rglob("*")
            if path.is_file() and path.name != ".artifacts.lock"
        }


class Memory(Place):
    """Objects."""

    def __init__(self, folder: Path) -> None:
        self._root = f"/{uuid4().hex}"
        self.system = fsspec.filesystem("memory")
        super().__init__(ArtifactStore(f"memory:/{self._root}"), folder)

    def bytes_at(self, name: str) -> bytes | None:
        path = f"{self._root}/{name}"
        found: bytes | None = self.system.cat_file(path) if self.system.exists(path) else None
        return found

    def put(self, name: str, data: bytes) -> None:
        self.system.pipe_file(f"{self._root}/{name}", data)

    def names(self) -> set[str]:
        return {path.removeprefix(f"{self._root}/") for path in self.system.find(self._root)}


class LocalObjects(Directory):
    """Files, by way of fsspec, for the sake of a second file system of its."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.target = ObjectTarget(LocalFileSystem(auto_mkdir=True), str(self.root))


@pytest.fixture(params=[Directory, Memory, LocalObjects])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A store of each kind."""
    made: Place = request.param(tmp_path)
    return made


class TestEverywhere:
    """What holds of files and of objects."""

    def test_what_was_stored_is_whole_and_described(self, place: Place) -> None:
        data = os.urandom(3_000_000)
        assert place.target.look(NAME) is None
        assert place.publish(data) == Published(whole_of(data), ours=True)
        assert place.target.look(NAME) == whole_of(data)
        assert place.bytes_at(NAME) == data
        assert json.loads(place.bytes_at(MANIFEST) or b"") == {
            "bytes": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
        }
        assert place.names() == {NAME, MANIFEST}

    @pytest.mark.parametrize("name", ["a*b?.mp4", "[1]{2}.mp4", "ä ß/\N{SNOWMAN}.mp4", "a#b%20", "~/a", "-", "a'b\"c"])
    def test_a_name_is_taken_as_it_is(self, place: Place, name: str) -> None:
        name = name_of(name)
        assert place.publish(b"data", name=name).ours
        assert place.target.look(name) == whole_of(b"data")
        assert place.names() == {name, f"{name}.manifest.json"}

    def test_what_is_whole_is_not_replaced(self, place: Place) -> None:
        place.publish(b"first")
        assert place.publish(b"other") == Published(whole_of(b"first"), ours=False)
        assert place.bytes_at(NAME) == b"first"
        assert place.names() == {NAME, MANIFEST}

    def test_killed_before_the_manifest_it_is_not_whole_and_is_stored_again(self, place: Place) -> None:
        place.put(NAME, b"first")
        assert place.target.look(NAME) is None
        assert place.publish(b"again").ours
        assert (place.bytes_at(NAME), place.target.look(NAME)) == (b"again", whole_of(b"again"))

    @pytest.mark.parametrize("there", [b"fir", b"firstfirst", b"", None])
    def test_of_another_size_than_its_manifest_it_is_not_whole(self, place: Place, there: bytes | None) -> None:
        place.put(MANIFEST, written(whole_of(b"first")))
        if there is not None:
            place.put(NAME, there)
        assert place.target.look(NAME) is None
        assert place.publish(b"again").ours
        assert place.target.look(NAME) == whole_of(b"again")

    @pytest.mark.parametrize("manifest", [b"", b"{", b"[]", b'{"bytes": 5}', b"\xff", b'{"bytes": 5, "sha256": "x"}'])
    def test_half_a_manifest_vouches_for_nothing(self, place: Place, manifest: bytes) -> None:
        place.put(NAME, b"first")
        place.put(MANIFEST, manifest)
        assert place.target.look(NAME) is None
        assert place.publish(b"again").ours

    @pytest.mark.parametrize("steps", range(1, 8))
    def test_stopped_at_any_step_it_is_not_whole_or_all_of_it(self, place: Place, steps: int) -> None:
        """By a cancellation, or by an error of the network."""
        data, left = os.urandom(2_500_000), steps

        def check() -> None:
            nonlocal left
            left -= 1
            if not left:
                raise StoppedError

        place.put(MANIFEST, written(whole_of(b"x" * len(data))))
        try:
            place.publish(data, check)
        except StoppedError:
            assert place.target.look(NAME) in (None, whole_of(b"x" * len(data)))
            assert place.target.look(NAME) is None or place.bytes_at(NAME) is None
        else:
            assert left > 0
        assert place.publish(data).ours or left > 0
        assert (place.target.look(NAME), place.bytes_at(NAME)) == (whole_of(data), data)
        assert place.names() == {NAME, MANIFEST}

    def test_of_many_at_once_one_is_stored_and_all_agree(self, place: Place) -> None:
        """Threads here, as two attempts of which one has lost its lease."""
        together = threading.Barrier(8)

        def store(number: int) -> Published:
            together.wait(10)
            return place.publish(bytes([number]) * 100_000)

        with ThreadPoolExecutor(8) as pool:
            published = list(pool.map(store, range(8)))
        there = place.target.look(NAME)
        assert there == whole_of(place.bytes_at(NAME) or b"")
        assert {each.whole for each in published} == {there}
        assert [each.ours for each in published].count(True) == 1

    def test_a_link_is_not_followed(self, place: Place, tmp_path: Path) -> None:
        (tmp_path / "secret").write_bytes(b"secret")
        (tmp_path / "link").symlink_to("secret")
        with pytest.raises(OSError, match=r"symbolic|Too many levels"):
            place.target.publish(NAME, tmp_path / "link", never)
        assert place.names() == set()


# Each time one call further, until it survives; what is there then has to be nothing, or all of it.
_KILLED_AT_EACH_STEP = """
import os, sys
from itertools import count
from pathlib import Path
from consumers.storage.files import FileTarget

store, made = map(Path, sys.argv[1:])
target = FileTarget(store)

def dying(steps, call):
    def counted(*args, **kwargs):
        if next(steps) == 0:
            os._exit(9)
        return call(*args, **kwargs)
    return counted

for most in count():
    if (child := os.fork()) == 0:
        steps = iter(range(most, -2, -1))
        for name in ("fsync", "unlink", "replace"):
            setattr(os, name, dying(steps, getattr(os, name)))
        target.publish("a", made, lambda: None)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    there = target.look("a")
    assert there is None or (store / "a").read_bytes() == made.read_bytes()
    print(code, "whole" if there else "nothing")
    if code == 0:
        break
    for name in ("a", "a.manifest.json"):
        (store / name).unlink(missing_ok=True)
"""


class TestFiles:
    """A directory."""

    def test_two_processes_at_once_agree(self, tmp_path: Path) -> None:
        """However they mix, the manifest is of what is there."""
        program = (
            "import sys; from pathlib import Path; from consumers.storage.files import FileTarget\n"
            "target, file = FileTarget(Path(sys.argv[1])), Path(sys.argv[2])\n"
            "print(flush=True); sys.stdin.readline()\n"
            "for n in range(30):\n"
            "    print(target.publish(f'{n}', file, lambda: None).ours)\n"
        )
        processes = []
        for letter in "ab":
            (tmp_path / letter).write_text(letter * 50_000)
            command = [sys.executable, "-c", program, str(tmp_path / "store"), str(tmp_path / letter)]
            process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
            )
            assert process.stdout
            process.stdout.readline()
            processes.append(process)
        for process in processes:
            assert process.stdin
            process.stdin.write("\n")
        said = [process.communicate(timeout=30)[0].split() for process in processes]

        target = FileTarget(tmp_path / "store")
        for number, answers in enumerate(zip(*said, strict=True)):
            assert sorted(answers) == ["False", "True"]
            assert target.look(str(number)) == whole_of((tmp_path / "store" / str(number)).read_bytes())

    def test_killed_at_any_moment_it_is_not_whole_or_all_of_it(self, tmp_path: Path) -> None:
        """By a process that is not asked."""
        made, store = tmp_path / "made", tmp_path / "store"
        made.write_bytes(b"x" * 100_000)
        command = [sys.executable, "-c", _KILLED_AT_EACH_STEP, str(store), str(made)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=True)
        *killed, survived = [line.split() for line in done.stdout.splitlines()]
        assert survived == ["0", "whole"]
        assert len(killed) >= 6
        assert {code for code, _ in killed} == {"9"}
        # The manifest is the last thing that counts; what follows tidies up.
        found = [there for _, there in killed]
        assert found == sorted(found, key=["nothing", "whole"].index)
        assert found[:4] == ["nothing"] * 4

    def test_an_error_keeps_its_kind_and_not_its_place(self, tmp_path: Path) -> None:
        (tmp_path / "store").write_text("a file")
        (tmp_path / "made").write_text("x")
        with pytest.raises(NotADirectoryError) as refusal:
            FileTarget(tmp_path / "store").publish(NAME, tmp_path / "made", never)
        assert str(tmp_path) not in str(refusal.value)
        assert NAME in str(refusal.value)

    def test_a_folder_in_the_way_is_not_whole(self, tmp_path: Path) -> None:
        place = Directory(tmp_path)
        (place.root / NAME).mkdir(parents=True)
        place.put(MANIFEST, written(whole_of(b"x" * (place.root / NAME).stat().st_size)))
        assert place.target.look(NAME) is None
        with pytest.raises(IsADirectoryError):
            place.publish(b"x")
        assert place.target.look(NAME) is None
        assert not [name for name in place.names() if name.endswith(".part")]

    def test_an_artifact_is_no_folder_of_another(self, tmp_path: Path) -> None:
        place = Directory(tmp_path)
        place.publish(b"x")
        assert place.target.look(f"{NAME}/thumb.jpg") is None
        with pytest.raises(OSError, match="could not be stored"):
            place.publish(b"x", name=f"{NAME}/thumb.jpg")


class TestObjects:
    """What fsspec leads to."""

    @pytest.fixture
    def place(self, tmp_path: Path) -> Memory:
        """In this process."""
        return Memory(tmp_path)

    def test_of_which_a_part_has_arrived_is_not_whole(self, place: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
        def half(self: Any, source: str, path: str, **_: Any) -> None:
            data = Path(source).read_bytes()
            self.pipe_file(path, data[: len(data) // 2])

        with monkeypatch.context() as patched:
            patched.setattr(type(place.system), "put_file", half)
            with pytest.raises(TransientError, match="50 of 100 bytes") as refusal:
                place.publish(b"x" * 100)
        assert (refusal.value.code, place.target.look(NAME)) == ("UPLOAD_INCOMPLETE", None)
        assert place.publish(b"x" * 100).ours

    def test_that_another_process_replaces_meanwhile_are_not_taken_for_ours(
        self, place: Memory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pipe = type(place.system).pipe_file

        def and_then_replaced(self: Any, path: str, value: bytes, **how: Any) -> None:
            pipe(self, path, value, **how)
            if path.endswith(".manifest.json"):
                pipe(self, path.removesuffix(".manifest.json"), b"longer than ours")

        with monkeypatch.context() as patched:
            patched.setattr(type(place.system), "pipe_file", and_then_replaced)
            with pytest.raises(TransientError, match="by somebody else") as refusal:
                place.publish(b"ours")
        assert (refusal.value.code, place.target.look(NAME)) == ("ARTIFACT_CONTESTED", None)

    def test_of_another_process_that_is_done_first_count(self, place: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
        pipe = type(place.system).pipe_file

        def and_then_replaced(self: Any, path: str, value: bytes, **how: Any) -> None:
            pipe(self, path, value, **how)
            if path.endswith(".manifest.json"):
                pipe(self, path.removesuffix(".manifest.json"), b"theirs")
                pipe(self, path, written(whole_of(b"theirs")))

        monkeypatch.setattr(type(place.system), "pipe_file", and_then_replaced)
        assert place.publish(b"ours") == Published(whole_of(b"theirs"), ours=False)

    def test_are_looked_for_anew_each_time(self, place: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
        """File systems keep listings, in which the object of another process is not."""
        asked: list[str] = []
        monkeypatch.setattr(type(place.system), "invalidate_cache", lambda _, path=None: asked.append(path))
        place.target.look(NAME)
        assert [path.endswith("/clips") for path in asked] == [True]


class TestStore:
    """A place by its URL."""

    @pytest.mark.parametrize(
        ("url", "said"),
        [
            ("", "neither a URL nor an absolute path"),
            ("media", "'media', which is neither a URL nor an absolute path"),
            ("s3:/media", "neither a URL nor an absolute path"),
            ("file://srv/media", "neither a URL nor an absolute path"),
            ("s3://", "names no place"),
            ("s3://media?x=1", "characters that no path has"),
            ("s3://media\n", "characters that no path has"),
            (None, "a value of type NoneType, no URL"),
            (Path("/srv"), "no URL"),
        ],
    )
    def test_that_is_none_is_refused_with_what_to_write(self, url: Any, said: str) -> None:
        with pytest.raises(ConfigurationError) as refusal:
            ArtifactStore(url)
        assert said in str(refusal.value)
        assert "write file:///srv/media, s3://bucket/folder" in str(refusal.value)

    @pytest.mark.parametrize(
        ("url", "location"),
        [
            ("/srv/media/", "file:///srv/media/clips/42.mp4"),
            ("file:///srv/media", "file:///srv/media/clips/42.mp4"),
            ("s3://media/", "s3://media/clips/42.mp4"),
            ("ftp://user:hunter2@host/media", "ftp://host/media/clips/42.mp4"),
        ],
    )
    def test_says_where_an_artifact_is_and_no_password(self, url: str, location: str) -> None:
        store = ArtifactStore(url, password="hunter2")  # noqa: S106 -- made up, to be looked for
        assert store.location(NAME) == location
        assert "hunter2" not in repr(store)

    def test_without_fsspec_names_the_extra(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "fsspec", None)
        monkeypatch.setitem(sys.modules, "fsspec.core", None)
        with pytest.raises(ConfigurationError, match=r"pip install '.\[artifacts\]'"):
            _ = ArtifactStore("s3://media").target

    def test_loads_nothing_of_fsspec_before_its_use(self, tmp_path: Path) -> None:
        """Nor at all for a directory."""
        program = (
            "import sys; from consumers.artifacts import ArtifactStore\n"
            "ArtifactStore('s3://media'); ArtifactStore(sys.argv[1]).target.look('a')\n"
            "sys.exit('fsspec' in sys.modules)"
        )
        command = [sys.executable, "-c", program, str(tmp_path)]
        assert subprocess.run(command, cwd=ROOT, timeout=30, check=False).returncode == 0

    def test_of_a_kind_that_nobody_knows_is_refused(self) -> None:
        with pytest.raises(ConfigurationError, match="no file system for artifacts at nowhere://"):
            _ = ArtifactStore("nowhere://media").target

    @pytest.mark.parametrize("name", ["../a", "/etc/passwd", "a/../../b", "", "a\0b", "a\nb", None, f"a/{MANIFEST}"])
    def test_takes_no_name_that_leads_elsewhere(self, name: Any) -> None:
        with pytest.raises(UsageError) as refusal:
            name_of(name)
        assert "etc" not in str(refusal.value)


@pytest.mark.parametrize(
    "manifest",
    [
        {"bytes": 0, "sha256": "0" * 64},
        {"bytes": -1, "sha256": "0" * 64},
        {"bytes": True, "sha256": "0" * 64},
        {"bytes": 1.0, "sha256": "0" * 64},
        {"bytes": "1", "sha256": "0" * 64},
        {"bytes": 1, "sha256": "0" * 63},
        {"bytes": 1, "sha256": "G" * 64},
        {"bytes": 1, "sha256": None},
        {},
        None,
    ],
    ids=range(10),
)
def test_a_manifest_of_nothing_is_none(manifest: Any) -> None:
    assert read(json.dumps(manifest).encode()) is None


def test_a_manifest_too_deep_to_read_is_none() -> None:
    assert read(b"[" * 200_000) is None
    assert read(b'{"bytes": ' + b"9" * 5_000 + b"}") is None
    assert read(written(Whole(1, "0" * 64))) == Whole(1, "0" * 64)
