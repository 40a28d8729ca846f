"""Statements that are waited for so long and no longer, whatever the network does."""

import asyncio
import os
import socket
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import psycopg

T = TypeVar("T")

_LATE_SECONDS = 0.05


async def answered(connection: psycopg.AsyncConnection[Any], asking: Coroutine[Any, Any, T], seconds: float) -> T:
    """Wait for a statement; where its time is over, or nobody waits for it any more, its connection is cut.

    Cancelled in its usual way it would ask the server to end it first, for as long as 20 s where nobody answers.
    """
    task = asyncio.create_task(asking)
    try:
        await asyncio.wait({task}, timeout=seconds)
        if not task.done():
            # What came in time is read only now, where something else held the process up.
            await asyncio.wait({task}, timeout=_LATE_SECONDS)
        if not task.done():
            raise TimeoutError(f"the database did not answer within {seconds:g} s")
    finally:
        if not task.done():
            cut(connection)
            await asyncio.gather(task, return_exceptions=True)
    return task.result()


def cut(connection: psycopg.AsyncConnection[Any]) -> None:
    """As a network does it: the descriptor stays, and whoever waits for it sees the end at once."""
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as end:
        end.shutdown(socket.SHUT_RDWR)
