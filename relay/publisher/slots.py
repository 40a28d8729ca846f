"""Work side by side: while the messages of one batch are on their way, the next is claimed."""

import asyncio
from collections.abc import Awaitable, Callable

# One more slot is wanted.
More = Callable[[], None]
# Does one thing, and says whether the slot that it was done in goes on.
Unit = Callable[[More], Awaitable[bool]]


async def side_by_side(most: int, unit: Unit, patience: float, hanging: Callable[[], bool]) -> None:
    """Do units one after the other in one slot, and beside it in as many more as they ask for, up to `most`.

    Where none of the slots ends within `patience`, and it is because they are `hanging`, there is one more all the
    same: something else may have come since.

    When one raises, the others end what they are at, and then it is raised here: what a unit has begun is not given
    up because another one fails. When this is cancelled, all of them are.
    """
    running: set[asyncio.Task[None]] = set()
    failures: list[BaseException] = []

    def more() -> None:
        if len(running) < most and not failures:
            task = asyncio.create_task(slot())
            running.add(task)
            # At once, whoever is waited for below: its place is free for another.
            task.add_done_callback(running.discard)

    async def slot() -> None:
        going_on = True
        try:
            while going_on and not failures:
                going_on = await unit(more)
                await asyncio.sleep(0)  # it may never have waited: the others have their turn
        except BaseException as error:  # noqa: BLE001 -- a cancellation of its own, too: it is raised below
            failures.append(error)

    more()
    try:
        await asyncio.sleep(0)  # it begins, and asks Postgres, before anything is made ready here
        while running:
            ended, _ = await asyncio.wait(running, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
            if not ended and hanging():
                more()
    finally:
        for task in running:
            task.cancel()
        # One that was cancelled before it began raises here, and the others have not ended by then.
        await asyncio.gather(*running, return_exceptions=True)
    if failures:
        raise failures[0]
