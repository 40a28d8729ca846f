"""`relay run`: one loop a runner, until the process is asked to stop; then an orderly end."""

import asyncio
from collections.abc import Collection, Mapping, Sequence

from relay.kernel.clock import Clock
from relay.kernel.loop import Loop
from relay.kernel.observe import LoopDied, Observe, ShutdownBegan, ShutdownEnded
from relay.kernel.shutdown import Shutdown
from relay.kernel.worker import close_all

# What may follow the soft timeout: a cancelled pass rolls back, then everything is closed.
CANCEL_SECONDS = 2.0
CLOSE_SECONDS = 2.0


async def supervise(
    loops: Sequence[Loop], shutdown: Shutdown, clock: Clock, soft_timeout: float, observe: Observe
) -> tuple[str, ...]:
    """Run the loops until shutdown, and name the runners that did not end by themselves in time.

    Raises what a loop died of: that is the configuration's fault or the kernel's own, and stops everything. When this
    coroutine is cancelled, the passes are cancelled too, without the soft timeout.
    """
    began = clock.monotonic()
    tasks = {loop: asyncio.create_task(_run(loop, shutdown, observe)) for loop in loops}
    try:
        await shutdown.stopping.wait()
        began = clock.monotonic()
        observe(ShutdownBegan(shutdown.reason, soft_timeout))
        _wake(loops)
        await _wait(tasks.values(), soft_timeout)
    finally:
        if not shutdown.stopping.is_set():
            began = clock.monotonic()
            shutdown.request("cancelled")
            _wake(loops)
        abandoned = await _end(tasks, clock)
        observe(ShutdownEnded(abandoned, clock.monotonic() - began))
    for loop, task in tasks.items():
        if task.done() and loop.worker.runner.name not in abandoned:
            task.result()
    return abandoned


async def _run(loop: Loop, shutdown: Shutdown, observe: Observe) -> None:
    name = loop.worker.runner.name
    try:
        await loop.run(shutdown.stopping)
    except BaseException as error:
        if not shutdown.stopping.is_set():
            observe(LoopDied(name, error))
            shutdown.request(f"the loop of {name} died")
            if isinstance(error, asyncio.CancelledError):
                # Nobody here cancels a loop before the shutdown; unnoticed it would look like an orderly end.
                raise RuntimeError(f"the loop of {name} was cancelled from outside") from error
        raise


async def _end(tasks: Mapping[Loop, asyncio.Task[None]], clock: Clock) -> tuple[str, ...]:
    late = {loop: task for loop, task in tasks.items() if not task.done()}
    for task in late.values():
        task.cancel()
    await _wait(late.values(), CANCEL_SECONDS)
    open_still = await close_all([loop.worker for loop in tasks], clock, CLOSE_SECONDS)
    return tuple(loop.worker.runner.name for loop in tasks if loop in late or loop.worker in open_still)


async def _wait(tasks: Collection[asyncio.Task[None]], seconds: float) -> None:
    if tasks:
        await asyncio.wait(tasks, timeout=seconds)


def _wake(loops: Sequence[Loop]) -> None:
    for loop in loops:
        loop.wake.set()
