"""Somebody who stores events at a steady pace, one a transaction: `python -m benchmarks.emitter RATE SECONDS`.

The times at which it stores them are fixed before it begins. A commit that is late holds up its own connection, which
then goes on at once, and nothing is left out: a stall is seen by every event that came meanwhile.
"""

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import psycopg

from benchmarks.contest import answer, take_part
from relay.settings import load

# What `outbox_emit` stores, for less: the xid comes before the id, of which the relay's floors make use.
EMIT = """
insert into outbox_events (event_id, event_type, aggregate_type, aggregate_id, payload)
select id, 'order.paid', 'order', %(number)s::text,
       jsonb_build_object('event_id', id, 'event_type', 'order.paid', 'version', 1, 'occurred_at', now(),
                          'actor', null, 'data', jsonb_build_object('note', repeat('x', 388)))
  from pg_current_xact_id(), outbox_uuid7(clock_timestamp()) as id
"""
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
            connection.execute(EMIT, {"number": number})
            committed.append((number, time.monotonic_ns()))
        return committed


def main(rate: int, seconds: int) -> None:
    """Take part in a contest: answer with the moment of each commit."""
    lanes = connections(rate)
    with ExitStack() as opened, ThreadPoolExecutor(lanes) as threads:
        url = load().require_database()
        open_ = [opened.enter_context(psycopg.connect(url, autocommit=True, prepare_threshold=0)) for _ in range(lanes)]
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
