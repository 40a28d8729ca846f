"""Many callers, few round trips, and each has its own answer."""

import asyncio
from collections.abc import Sequence

import pytest

from consumers.gather import Gather


class Server:
    """Doubles numbers, batch by batch, as the test lets it."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.go = asyncio.Event()
        self.go.set()

    async def __call__(self, questions: Sequence[int]) -> Sequence[int | BaseException]:
        self.batches.append(list(questions))
        await self.go.wait()
        return [ValueError("odd") if number == 13 else 2 * number for number in questions]


async def ask(gather: Gather[int, int], *numbers: int) -> list[int | BaseException]:
    return await asyncio.gather(*(gather.ask(number) for number in numbers), return_exceptions=True)


async def test_who_asks_in_one_turn_of_the_loop_goes_along() -> None:
    server = Server()
    assert await ask(Gather(server), 1, 2, 3) == [2, 4, 6]
    assert server.batches == [[1, 2, 3]]


async def test_a_lone_question_goes_at_once() -> None:
    server = Server()
    gather = Gather(server)
    assert [await gather.ask(1), await gather.ask(2)] == [2, 4]
    assert server.batches == [[1], [2]]


async def test_who_asks_while_requests_are_under_way_goes_with_the_next_one() -> None:
    server = Server()
    server.go.clear()
    gather = Gather(server, at_once=2)
    tasks = []
    for number in range(6):
        tasks.append(asyncio.create_task(gather.ask(number)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert server.batches == [[0], [1]]
    server.go.set()
    assert await asyncio.gather(*tasks) == [0, 2, 4, 6, 8, 10]
    assert server.batches == [[0], [1], [2, 3, 4, 5]]


async def test_a_batch_is_bounded() -> None:
    server = Server()
    assert await ask(Gather(server, most=2, at_once=1), *range(5)) == [0, 2, 4, 6, 8]
    assert server.batches == [[0, 1], [2, 3], [4]]


async def test_the_failure_of_one_question_is_its_own() -> None:
    one, other = await ask(Gather(Server()), 13, 2)
    assert isinstance(one, ValueError)
    assert other == 4


async def test_the_failure_of_a_request_is_everybodys() -> None:
    async def away(_: Sequence[int]) -> Sequence[int]:
        raise OSError("away")

    answers = await ask(Gather(away), 1, 2)
    assert [type(answer) for answer in answers] == [OSError, OSError]


async def test_too_few_answers_are_an_error_and_no_silence() -> None:
    """Whoever waited for an answer that does not come would wait for ever."""

    async def forgetful(questions: Sequence[int]) -> Sequence[int]:
        return list(questions)[:1]

    async with asyncio.timeout(10):
        assert [type(answer) for answer in await ask(Gather(forgetful), 1, 2)] == [ValueError, ValueError]


async def test_one_that_is_cancelled_leaves_the_others_their_answers() -> None:
    server = Server()
    server.go.clear()
    gather = Gather(server)
    impatient, patient = (asyncio.create_task(gather.ask(number)) for number in (1, 2))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    impatient.cancel()
    server.go.set()
    assert await patient == 4
    with pytest.raises(asyncio.CancelledError):
        await impatient
