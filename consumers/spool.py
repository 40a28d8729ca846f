"""Bodies that wait for their turn: in memory while they are few, in a file that nobody else sees beyond that."""

from tempfile import SpooledTemporaryFile
from typing import NamedTuple, Self

_MEMORY_BYTES = 64_000_000


class Place(NamedTuple):
    """Where a body is kept."""

    start: int
    size: int


class Spool:
    """Keeps bodies until it is closed."""

    def __init__(self, memory_bytes: int = _MEMORY_BYTES) -> None:
        self._file = SpooledTemporaryFile(max_size=memory_bytes)  # noqa: SIM115 -- closed with the spool
        self._end = 0

    def put(self, body: bytes) -> Place:
        """Keep a body."""
        place = Place(self._end, len(body))
        self._file.seek(self._end)
        self._file.write(body)
        self._end += len(body)
        return place

    def get(self, place: Place) -> bytes:
        """What was kept there."""
        self._file.seek(place.start)
        return self._file.read(place.size)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of all bodies."""
        self._file.close()
