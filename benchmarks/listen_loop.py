"""What a hand-written relay comes to that is told of every event: `python -m benchmarks.listen_loop TOPIC`.

One connection listens, claims what waits, publishes it and marks it. There is no failure that it survives. Whoever
stores an event notifies, each time: `TELL_ALWAYS` is the trigger that it needs.
"""

import select
import sys
import time

from google.pubsub_v1.services.publisher import PublisherClient

from benchmarks.bare import BATCH, Session, emulator, full_name, publish
from benchmarks.contest import answer, take_part
from relay.kernel.command import spare_the_collector
from relay.settings import load

CHANNEL = "listen_loop"
TELL_ALWAYS = f"""
create function tell_always() returns trigger language plpgsql
as $$ begin perform pg_notify('{CHANNEL}', ''); return null; end $$;
create trigger tell_always after insert on outbox_events for each statement execute function tell_always();
alter table outbox_events disable trigger outbox_events_wake;
"""
TELL_NO_MORE = """
drop function tell_always() cascade;
alter table outbox_events enable trigger outbox_events_wake;
"""


class Loop:
    """Claims and publishes whenever it is told."""

    def __init__(self, session: Session, client: PublisherClient, topic: str) -> None:
        self.acked: dict[str, int] = {}
        self._session = session
        self._client = client
        self._topic = topic
        self._told = False
        session.connection.add_notify_handler(lambda _: self._hear())
        session.say(f"listen {CHANNEL}".encode())

    def run(self) -> None:
        """Go on until something is said on stdin."""
        going_on = True
        while going_on:
            self._told = False
            while self._batch() == BATCH:
                pass
            going_on = self._news()

    def _hear(self) -> None:
        self._told = True

    def _news(self) -> bool:
        """Return when it is told of an event; answer with False when it is to end."""
        connection = self._session.connection
        while True:
            connection.pgconn.consume_input()
            while connection.pgconn.notifies() is not None:
                self._told = True
            if self._told:
                return True
            ready, _, _ = select.select([connection, sys.stdin], [], [])
            if sys.stdin in ready:
                return False

    def _batch(self) -> int:
        rows = self._session.claim()
        if rows:
            message_ids = publish(self._client, self._topic, rows)
            now = time.monotonic_ns()
            self.acked.update((row[4].decode(), now) for row in rows)
            self._session.mark(self._topic, rows, message_ids)
        else:
            self._session.end()
        return len(rows)


def main(topic: str) -> None:
    """Take part in a contest: answer with the moment at which the broker had each event, by its number."""
    settings = load()
    session = Session(settings.require_database())
    with session.connection:
        loop = Loop(session, emulator(settings), full_name(settings, topic))
        spare_the_collector()
        take_part()
        loop.run()
        answer(acked=loop.acked)


if __name__ == "__main__":
    main(sys.argv[1])
