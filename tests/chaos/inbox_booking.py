"""A consumer with an inbox whose every effect is a row of the transaction that completes its delivery.

Run as `python -m consumers run tests.chaos.inbox_booking:consumer`, with SUBSCRIPTION, DEAD_LETTERS, and GO, a file for
which slow handlers wait.
"""

import os
import signal
import time
from pathlib import Path

from consumers import Consumer, Context, Exponential, Received

_GO = Path(os.environ.get("GO", "/nonexistent"))
_INSERT = "insert into effects (event_id, process) values (%s, %s)"

consumer = Consumer(
    "booking",
    dedup="inbox",
    subscription=os.environ["SUBSCRIPTION"],
    dead_letter_topic=os.environ["DEAD_LETTERS"],
    retry=Exponential("100ms", most="1s", jitter="50ms", max_attempts=int(os.environ.get("ATTEMPTS", "-1"))),
)


@consumer.on("order.paid")
async def book(event: Received[dict[str, object]], ctx: Context) -> None:
    """Have the effect and complete the delivery, both or neither; or die, where the event says so."""
    if event.data.get("do") == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    async with ctx.transaction() as connection:
        await connection.execute(_INSERT, [event.event_id, os.getpid()])
        await ctx.complete(connection)


@consumer.on("order.slow")
def book_slowly(event: Received[dict[str, object]], ctx: Context) -> None:
    """In a thread, which nobody can cancel: wait, and then end as the event says."""
    print(f"begun {event.data['do']} in {os.getpid()}", flush=True)  # noqa: T201 -- whoever stops the process waits for it
    while not _GO.exists():
        time.sleep(0.01)
    if event.data["do"] == "raise":
        raise OSError("too late")
    if event.data["do"] == "complete":
        with ctx.transaction() as connection:
            connection.execute(_INSERT, [event.event_id, os.getpid()])
            ctx.complete(connection)
