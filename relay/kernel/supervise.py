"""`relay run`: one loop a runner, until the process is asked to stop; then an orderly end."""

import asyncio
from collections.abc import Sequence

from relay.kernel.clock import Clock
from relay.kernel.loop import Loop
from relay.kernel.observe import Observe, ShutdownBegan, ShutdownEnded
from relay.kernel.shutdown import Shutdown


async def supervise(
    loops: Sequence[Loop], shutdown: Shutdown, clock: Clock, soft_timeout: float, observe: Observe
) -> tuple[str, ...]:
    """Run the loops until shutdown and name the runners whose last pass did not end in time."""
    tasks = {asyncio.create_task(loop.run(shutdown.stopping), name=loop.worker.runner.name): loop for loop in loops}
    stop = asyncio.create_task(shutdown.stopping.wait())
    # A loop ends before the shutdown only by a fault of the kernel itself: then everything stops, loudly.
    await asyncio.wait([stop, *tasks], return_when=asyncio.FIRST_COMPLETED)
    began = clock.monotonic()
    shutdown.request("a loop ended")
    observe(ShutdownBegan(shutdown.reason, soft_timeout))
    for loop in loops:
        loop.wake.set()
    _, late = await asyncio.wait(tasks, timeout=soft_timeout)
    for task in late:
        task.cancel()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    for loop in loops:
        await loop.worker.runner.close()
    abandoned = tuple(sorted(task.get_name() for task in late))
    observe(ShutdownEnded(abandoned, clock.monotonic() - began))
    await stop
    for end in ends:
        if isinstance(end, Exception):
            raise end
    return abandoned
