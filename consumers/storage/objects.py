"""Artifacts wherever fsspec leads: S3, Google Cloud Storage, a process's memory."""

import threading
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from consumers.errors import TransientError
from consumers.storage.manifest import SUFFIX, Whole, read, written
from consumers.storage.output import digest, reading
from consumers.storage.target import Check, Published

_turns: "WeakValueDictionary[str, _Turn]" = WeakValueDictionary()
_turns_lock = threading.Lock()


class ObjectTarget:
    """Object stores put an object as a whole or not at all; others may leave a half, which has no manifest then."""

    def __init__(self, system: Any, root: str) -> None:
        self._system = system
        self._root = root.rstrip("/")

    def look(self, name: str) -> Whole | None:
        """The artifact, if it is there and whole."""
        place = self._place(name)
        self._system.invalidate_cache(self._system._parent(place))  # noqa: SLF001 -- there is no other name for it
        try:
            whole = read(self._system.cat_file(place + SUFFIX))
            size = self._system.info(place)["size"]
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        return whole if whole and size == whole.bytes else None

    def publish(self, name: str, file: Path, check: Check) -> Published:
        """Put the file there, and its manifest behind it."""
        from fsspec.callbacks import Callback  # noqa: PLC0415 -- an extra, without which all of this can be loaded

        place = self._place(name)
        with reading(file) as source:
            whole = digest(source, check)
        with _turn_of(f"{self._system.protocol} {place}"):
            check()
            if before := self.look(name):
                return Published(before, ours=False)
            # What it says must not be taken for said of what is uploaded now.
            with suppress(FileNotFoundError):
                self._system.rm_file(place + SUFFIX)
            self._system.put_file(str(file), place, callback=Callback(hooks={"check": lambda *_, **__: check()}))
            check()
            self._require_size(name, place, whole)
            self._system.pipe_file(place + SUFFIX, written(whole))
            there = self.look(name)
        if there is None:
            raise TransientError(
                f"artifact {name!r} is being uploaded by somebody else at the same time; hold ctx.lock around it",
                "ARTIFACT_CONTESTED",
            )
        return Published(there, ours=there == whole)

    def _require_size(self, name: str, place: str, whole: Whole) -> None:
        self._system.invalidate_cache(self._system._parent(place))  # noqa: SLF001 -- as in look
        size = self._system.info(place)["size"]
        if size != whole.bytes:
            raise TransientError(
                f"artifact {name!r}: {size} of {whole.bytes} bytes have arrived in the store", "UPLOAD_INCOMPLETE"
            )

    def _place(self, name: str) -> str:
        return f"{self._root}/{name}"


class _Turn:
    """One upload of an artifact after the other, in this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def _turn_of(place: str) -> _Turn:
    with _turns_lock:
        return _turns.setdefault(place, _Turn())
