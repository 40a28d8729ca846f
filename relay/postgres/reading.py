"""A connection that reads all that has arrived before it waits for more.

A claim's answer arrives in some fifty parts of 8 KB, as fast as they are read. To wait for each on the event loop costs
more than to read it; to ask whether it is there costs next to nothing.
"""

import select
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.waiting import Ready, Wait

T = TypeVar("T")


class Connection(psycopg.AsyncConnection[Any]):
    """One of psycopg's, but for how it reads."""

    async def wait(self, gen: PQGen[T], *args: Any, **named: Any) -> T:
        """Consume a generator of psycopg's, which says what it waits for and is told when that is there."""
        return await super().wait(eager(gen, self.pgconn.socket), *args, **named)


def eager(waiting: PQGen[T], socket: int) -> PQGen[T]:
    """The same generator, which is told at once of what is there to be read."""
    arrived = select.poll()
    arrived.register(socket, select.POLLIN)
    try:
        wanted = next(waiting)
        while True:
            there = wanted == Wait.R and arrived.poll(0)
            wanted = waiting.send(Ready.R if there else (yield wanted))
    except StopIteration as ended:
        answer: T = ended.value
        return answer
