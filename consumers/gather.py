"""Many callers, few round trips: what is asked while a request is under way goes with the next one."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Question = TypeVar("Question")
Answer = TypeVar("Answer")


class Gather(Generic[Question, Answer]):
    """Asks in batches of up to `most`, with up to `at_once` requests under way; a lone question goes at once.

    `call` answers each question in its place, with an exception where that question alone failed.
    """

    def __init__(
        self,
        call: Callable[[Sequence[Question]], Awaitable[Sequence[Answer | BaseException]]],
        most: int = 200,
        at_once: int = 2,
    ) -> None:
        self._call = call
        self._most = most
        self._at_once = at_once
        self._waiting: deque[tuple[Question, asyncio.Future[Answer]]] = deque()
        self._calls: dict[asyncio.Task[None], list[tuple[Question, asyncio.Future[Answer]]]] = {}
        self._soon = False

    async def ask(self, question: Question) -> Answer:
        """The answer to this question."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = loop.create_future()
        self._waiting.append((question, answer))
        if not self._soon and len(self._calls) < self._at_once:
            # Not at once: whoever asks in this turn of the loop goes along.
            self._soon = True
            loop.call_soon(self._send)
        return await answer

    def fail(self, error: Exception) -> None:
        """Answer whoever waits with this error; what was sent may have its effect all the same."""
        waiting, self._waiting = self._waiting, deque()
        for _, answer in [*waiting, *(each for batch in self._calls.values() for each in batch)]:
            if not answer.done():
                answer.set_exception(error)

    def _send(self) -> None:
        self._soon = False
        while self._waiting and len(self._calls) < self._at_once:
            count = min(self._most, len(self._waiting))
            batch = [self._waiting.popleft() for _ in range(count)]
            call = asyncio.ensure_future(self._answer(batch))
            self._calls[call] = batch
            call.add_done_callback(self._sent)

    def _sent(self, call: "asyncio.Task[None]") -> None:
        del self._calls[call]
        self._send()

    async def _answer(self, batch: list[tuple[Question, "asyncio.Future[Answer]"]]) -> None:
        try:
            answers = await self._call([question for question, _ in batch])
        except asyncio.CancelledError:
            for _, future in batch:
                future.cancel()
            raise
        except Exception as error:  # noqa: BLE001 -- it is each caller's
            answers = [error] * len(batch)
        if len(answers) != len(batch):
            answers = [ValueError(f"{len(answers)} answers to {len(batch)} questions")] * len(batch)
        for (_, future), answer in zip(batch, answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, BaseException):
                future.set_exception(answer)
            else:
                future.set_result(answer)
