"""Threads for handlers that are plain functions; they never keep the process from ending."""

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any

_Work = tuple[Callable[[], Any], "asyncio.Future[Any]", contextvars.Context]


class Threads:
    """As many threads as ever ran at once. Daemons: one that never returns is abandoned at the end of the process."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._threads = 0
        self._idle = 0

    def run(self, call: Callable[[], Any]) -> "asyncio.Future[Any]":
        """Start the call in a thread that is free, or a new one. The future's cancellation does not reach it.

        Raises RuntimeError where the system gives no new thread; the call is not made then, nor later.
        """
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._idle:
            self._idle -= 1
        else:
            name = f"{self._name}-{self._threads + 1}"
            threading.Thread(target=self._serve, name=name, daemon=True).start()
            self._threads += 1
        self._work.put((call, future, contextvars.copy_context()))
        return future

    def close(self) -> None:
        """Let the threads end that have nothing to do."""
        for _ in range(self._threads):
            self._work.put(None)

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            call, future, variables = work
            loop = future.get_loop()
            try:
                answer, error = variables.run(call), None
            except BaseException as raised:  # noqa: BLE001 -- it is the caller's, who waits in the other thread
                answer, error = None, raised
            try:
                loop.call_soon_threadsafe(self._answer, future, answer, error)
            except RuntimeError:
                return  # the loop is closed: nobody waits any more
            del work, call, future, variables, answer, error

    def _answer(self, future: "asyncio.Future[Any]", answer: Any, error: BaseException | None) -> None:
        self._idle += 1
        if future.done():
            return
        if error is None:
            future.set_result(answer)
        elif isinstance(error, StopIteration):
            future.set_exception(RuntimeError("the handler raised StopIteration"))
        else:
            future.set_exception(error)
