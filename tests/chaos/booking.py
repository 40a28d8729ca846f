"""A consumer whose every effect is a line in a file, so that whoever kills it can count them.

Run as `python -m consumers run tests.chaos.booking:consumer`, with EFFECTS (the file), SUBSCRIPTION and WORK_SECONDS.
"""

import asyncio
import os
import time

from consumers import Consumer, Context, Exponential, Received

_EFFECTS = os.open(os.environ["EFFECTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
_WORK_SECONDS = float(os.environ.get("WORK_SECONDS", "0"))

consumer = Consumer(
    "booking",
    subscription=os.environ["SUBSCRIPTION"],
    dead_letter_topic=os.environ["DEAD_LETTERS"],
    concurrency=int(os.environ.get("CONCURRENCY", "20")),
    retry=Exponential("100ms", most="1s", jitter="50ms"),
)


@consumer.on("order.paid")
async def book(event: Received[object], ctx: Context) -> None:
    """Work, and then have the effect: one write, which is there or not, also where the process is killed."""
    began = time.time()
    if _WORK_SECONDS:
        await asyncio.sleep(_WORK_SECONDS)
    line = f"{event.event_id} {os.getpid()} {ctx.attempt} {began:.6f} {time.time():.6f}\n"
    os.write(_EFFECTS, line.encode())
