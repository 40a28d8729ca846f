"""How a session waits for what it is told, on a socket without a server."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from typing import Any, cast

import psycopg
import pytest

from relay.outbox.listening import Listening
from tests.unit.kernel.fakes import in_fake_time
from tests.unit.outbox.sleeping import later


class Wire:
    """A connection as far as a session reads it: each byte that arrives is a notification."""

    def __init__(self) -> None:
        self.pgconn = self
        self.notify_handler: Callable[[psycopg.Notify], None] | None = None
        self.ours, self.theirs = socket.socketpair()
        self.ours.settimeout(0.0)
        self._arrived = 0

    def add_notify_handler(self, handler: Callable[[psycopg.Notify], None]) -> None:
        """The only one."""
        self.notify_handler = handler

    def fileno(self) -> int:
        """What the event loop waits for."""
        return self.ours.fileno()

    def consume_input(self) -> None:
        """Take what is there."""
        try:
            self._arrived += len(self.ours.recv(100))
        except BlockingIOError:
            return

    def notifies(self) -> psycopg.Notify | None:
        """One of those that have arrived."""
        if not self._arrived:
            return None
        self._arrived -= 1
        return psycopg.Notify("outbox_1", "", 1)

    def tell(self) -> None:
        """Let one arrive."""
        self.theirs.send(b".")


@pytest.fixture
def wire() -> Iterator[Wire]:
    """One that is closed at the end."""
    wire = Wire()
    yield wire
    wire.ours.close()
    wire.theirs.close()


async def waited(wire: Wire, listening: Listening, wake: asyncio.Event, seconds: float) -> tuple[bool, float]:
    """Whether anything has arrived, and after how long; what was heard is forgotten."""
    began = asyncio.get_running_loop().time()
    arrived = await listening.wait(wake, seconds)
    assert listening.heard == arrived
    listening.heard = False
    # Nothing of it is left on the socket.
    assert not asyncio.get_running_loop().remove_reader(wire.fileno())
    return arrived, asyncio.get_running_loop().time() - began


def session(wire: Wire) -> Listening:
    """A session on it."""
    return Listening(cast("psycopg.AsyncConnection[Any]", wire), relation=1)


@in_fake_time
async def test_a_wait_in_which_nothing_comes_lasts_its_time(wire: Wire) -> None:
    """Also behind another one: what ends with the first does not end the second."""
    listening, wake = session(wire), asyncio.Event()
    assert [await waited(wire, listening, wake, seconds) for seconds in (2.0, 2.0, 0.0, 2.0)] == [
        (False, 2.0),
        (False, 2.0),
        (False, 0.0),
        (False, 2.0),
    ]


@in_fake_time
async def test_a_notification_ends_a_wait(wire: Wire) -> None:
    """And the next wait lasts its time."""
    listening, wake = session(wire), asyncio.Event()
    later(0.5, wire.tell)
    assert await waited(wire, listening, wake, 2.0) == (True, 0.5)
    assert await waited(wire, listening, wake, 2.0) == (False, 2.0)


@in_fake_time
async def test_what_has_arrived_before_is_found_without_waiting(wire: Wire) -> None:
    """Even where there is no time at all."""
    listening, wake = session(wire), asyncio.Event()
    for seconds in (0.0, 2.0):
        wire.tell()
        assert await waited(wire, listening, wake, seconds) == (True, 0.0)


@in_fake_time
async def test_a_wake_up_ends_a_wait_and_every_other_until_it_is_over(wire: Wire) -> None:
    """It is no notification."""
    listening, wake = session(wire), asyncio.Event()
    later(0.5, wake.set)
    assert await waited(wire, listening, wake, 2.0) == (False, 0.5)
    assert await waited(wire, listening, wake, 2.0) == (False, 0.0)
    wake.clear()
    assert await waited(wire, listening, wake, 2.0) == (False, 2.0)
