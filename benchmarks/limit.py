"""The most that this machine allows: the same work by a short loop that does nothing else.

It claims, publishes and marks in one transaction, as the relay does, three batches at a time, each in a thread of its
own. There is no failure that it survives. Its batches are the relay's, and what a request holds: with 2,000 rows
Postgres takes half a microsecond less for an event, whoever asks. Two and four slots are no faster than three.

    python -m benchmarks.limit TOPIC
"""

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock

from google.pubsub_v1.services.publisher import PublisherClient

from benchmarks.bare import Session, emulator, full_name, publish
from benchmarks.contest import answer, take_part
from relay.kernel.command import spare_the_collector
from relay.settings import load

SLOTS = 3  # as the relay


@dataclass
class Claims:
    """Above which id the next claim looks; one slot claims at a time, and finds what the others have not."""

    floor: bytes = b"0"
    turn: Lock = field(default_factory=Lock)


def drain(session: Session, client: PublisherClient, topic: str, claims: Claims) -> int:
    """Publish until nothing is found."""
    published = 0
    while True:
        with claims.turn:
            rows = session.claim(claims.floor)
            if not rows:
                session.end()
                return published
            claims.floor = rows[-1][0]
        session.mark(topic, rows, publish(client, topic, rows))
        published += len(rows)


def main(topic: str, client: PublisherClient | None = None) -> None:
    """Take part in a contest, when all that waits now is drained."""
    settings = load()
    name, to = full_name(settings, topic), client or emulator(settings)
    sessions = [Session(settings.require_database()) for _ in range(SLOTS)]
    claims = Claims()
    spare_the_collector()

    def emptied() -> int:
        with ThreadPoolExecutor(SLOTS) as threads:
            slots = [threads.submit(drain, session, to, name, claims) for session in sessions]
        return sum(slot.result() for slot in slots)

    emptied()
    take_part()
    answer(events=emptied())


if __name__ == "__main__":
    main(sys.argv[1])
