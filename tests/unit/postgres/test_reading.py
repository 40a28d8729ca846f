"""What has arrived is read before anything is waited for."""

import socket
from collections.abc import Iterator

import pytest
from psycopg.abc import PQGen
from psycopg.waiting import Ready, Wait

from relay.postgres.reading import eager


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def parts(ours: socket.socket, wanted: int, told: list[int]) -> PQGen[bytes]:
    """Reads byte by byte, and asks before each whether it is there."""
    read = b""
    while len(read) < wanted:
        told.append((yield Wait.R))
        read += ours.recv(1)
    return read


def ending(reading: PQGen[bytes], answer: int | None = None) -> bytes:
    """What a generator returns that asks for nothing more."""
    with pytest.raises(StopIteration) as ended:
        next(reading) if answer is None else reading.send(answer)
    found: bytes = ended.value.value
    return found


def test_what_is_there_is_not_waited_for(ends: tuple[socket.socket, socket.socket]) -> None:
    """Part after part, in one go."""
    ours, theirs = ends
    told: list[int] = []
    theirs.sendall(b"all of it")
    assert ending(eager(parts(ours, 9, told), ours.fileno())) == b"all of it"
    assert told == [Ready.R] * 9


def test_what_is_not_there_is_waited_for(ends: tuple[socket.socket, socket.socket]) -> None:
    """As psycopg has it, with the answer that it gets."""
    ours, theirs = ends
    told: list[int] = []
    theirs.sendall(b"so")
    reading = eager(parts(ours, 4, told), ours.fileno())
    assert next(reading) is Wait.R
    assert told == [Ready.R] * 2
    theirs.sendall(b" on")
    assert ending(reading, Ready.R) == b"so o"


def test_what_waits_to_write_is_left_alone(ends: tuple[socket.socket, socket.socket]) -> None:
    """Whether anything has arrived is another matter then."""
    ours, theirs = ends
    theirs.sendall(b"early")

    def writing() -> PQGen[bytes]:
        assert (yield Wait.RW) == Ready.W
        return b"written"

    reading = eager(writing(), ours.fileno())
    assert next(reading) is Wait.RW
    assert ending(reading, Ready.W) == b"written"
