"""Servers of a few lines, whose every connection is closed when their test ends."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeAlias

Answer: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def answered(answer: Answer, **options: Any) -> AsyncIterator[int]:
    """The port on which each connection is given to `answer`, and closed behind it or with the block.

    Before Python 3.12 a server that is closed waits for none of its connections.
    """
    answering: set[asyncio.Task[Any]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        answering.add(task)
        try:
            await answer(reader, writer)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, **options)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        # What was accepted last has its transport, its streams and its task one after the other.
        for _ in range(3):
            await asyncio.sleep(0)
        for task in answering:
            task.cancel()
        await asyncio.gather(*answering, return_exceptions=True)
