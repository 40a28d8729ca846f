"""Somebody who stores events at a steady pace, one a transaction: `python -m benchmarks.emitter RATE SECONDS`.

The times at which it stores them are fixed before it begins. A commit that is late holds up its own connection, which
then goes on at once, and nothing is left out: a stall is seen by every event that came meanwhile.
"""

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import psycopg

from benchmarks.contest import answer, take_part
from relay.settings import load

EMIT = "select outbox_emit(%s::jsonb)"
# An event of 400 bytes, known by its number.
NUMBERED = json.dumps(
    [{"event_type": "order.paid", "aggregate_type": "order", "aggregate_id": "%d", "data": {"note": "x" * 388}}]
)
# So many events a second are stored over one connection.
A_CONNECTION = 125
SOON = 0.05


@dataclass(frozen=True)
class Lane:
    """What is stored over one connection: every so manieth event, each at its time."""

    number: int
    lanes: int
    rate: int
    events: int
    began: float

    def store(self, connection: psycopg.Connection[Any]) -> list[tuple[int, int]]:
        """Answer with the nanosecond at which each commit had returned, by the number of the event."""
        committed: list[tuple[int, int]] = []
        for number in range(self.number, self.events, self.lanes):
            time.sleep(max(0.0, self.began + number / self.rate - time.monotonic()))
            connection.execute(EMIT, [NUMBERED % number])
            committed.append((number, time.monotonic_ns()))
        return committed


def main(rate: int, seconds: int) -> None:
    """Take part in a contest: answer with the moment of each commit."""
    lanes = connections(rate)
    with ExitStack() as opened, ThreadPoolExecutor(lanes) as threads:
        url = load().require_database()
        open_ = [opened.enter_context(psycopg.connect(url, autocommit=True, prepare_threshold=0)) for _ in range(lanes)]
        for connection in open_:
            connection.execute(EMIT, ["[]"])
        take_part()
        began = time.monotonic() + SOON
        storing = [
            threads.submit(Lane(number, lanes, rate, rate * seconds, began).store, connection)
            for number, connection in enumerate(open_)
        ]
        committed = [moment for stored in storing for moment in stored.result()]
    answer(committed=dict(committed), began=round(began * 1e9))


def connections(rate: int) -> int:
    """Over how many connections a rate is reached, with room for commits that are slow."""
    return max(1, -(-rate // A_CONNECTION))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
