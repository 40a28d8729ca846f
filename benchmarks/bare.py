"""What the hand-written loops are made of: a session that claims and marks, and a client that publishes.

Calls block, which costs less than an event loop that waits for each part of an answer. What is read stays bytes, which
protobuf takes for text: nothing is decoded to be encoded again. There is no failure that they survive.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import grpc
import psycopg
from google.pubsub_v1.services.publisher import PublisherClient
from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport
from google.pubsub_v1.types import PublishRequest
from psycopg.types.string import TextLoader

from relay.brokers.pubsub_client import PubSubAddress
from relay.settings import Settings

BATCH = 1_000  # what one request to Pub/Sub holds

Row = tuple[bytes, ...]
Request = PublishRequest.pb()

# The plans that the relay allows itself: by index, one plan for all values.
_SESSION = {
    "timezone": "UTC",
    "datestyle": "ISO",
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_sort": "off",
}
_OPTIONS = " ".join(f"-c {name}={value}" for name, value in _SESSION.items())
_CLAIM = b"""
prepare claim (bigint, int) as
select id, event_id, event_type, aggregate_type, aggregate_id, payload,
       to_char(created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
  from outbox_events
 where published_at is null and failed_at is null and ordering_key is null and available_at = '-infinity'
   and id > $1
 order by id
 limit $2
   for update skip locked
"""
# `between` is a way to say that they are equal of which the planner can make one thing only: a lookup for each id.
_MARK = b"""
prepare mark (text, bigint[], text[]) as
update outbox_events as event
   set published_at = clock_timestamp(), message_id = done.message_id, topic = $1
  from unnest($2, $3) as done (id, message_id)
 where event.id between done.id and done.id
"""
_AS_IT_COMES = ("int8", "uuid", "jsonb")


class Session:
    """Claims and marks, each in one message of the simple protocol: a pipeline costs more Python than it saves."""

    def __init__(self, url: str) -> None:
        self.connection: psycopg.Connection[Any] = psycopg.connect(
            url, autocommit=True, prepare_threshold=None, options=_OPTIONS, client_encoding="SQL_ASCII"
        )
        for name in _AS_IT_COMES:
            self.connection.adapters.register_loader(name, TextLoader)
        self._cursor = self.connection.cursor()
        self.say(_CLAIM)
        self.say(_MARK)

    def say(self, message: bytes) -> None:
        """Send it, whatever it returns."""
        self._cursor.execute(message, prepare=False)

    def claim(self, floor: bytes = b"0") -> list[Row]:
        """Begin, and lock what comes next above an id."""
        self.say(b"begin; execute claim(%s, %d)" % (floor, BATCH))
        self._cursor.nextset()
        return self._cursor.fetchall()

    def end(self) -> None:
        """End a transaction that has claimed nothing."""
        self.say(b"commit")

    def mark(self, topic: str, rows: Sequence[Row], message_ids: Iterable[str]) -> None:
        """Say that they are published, and commit."""
        ids = b",".join([row[0] for row in rows])
        marked = (topic.encode(), ids, ",".join(message_ids).encode())
        self.say(b"execute mark('%s', '{%s}', '{%s}'); commit" % marked)


def emulator(settings: Settings) -> PublisherClient:
    """A client of the emulator."""
    channel = grpc.insecure_channel(settings.pubsub_emulator_host)
    return PublisherClient(transport=PublisherGrpcTransport(channel=channel))


def full_name(settings: Settings, topic: str) -> str:
    """Of a topic, as Pub/Sub wants it."""
    return PubSubAddress(settings.require_project()).topic(topic)


def publish(client: PublisherClient, topic: str, rows: Sequence[Row]) -> Sequence[str]:
    """Publish all rows in one request; answer with the ids of the messages."""
    request = Request(topic=topic)
    for row_id, event_id, event_type, aggregate_type, aggregate_id, body, created_at in rows:
        attributes = request.messages.add(data=body).attributes
        attributes["event_id"] = event_id
        attributes["event_type"] = event_type
        attributes["aggregate_type"] = aggregate_type
        attributes["aggregate_id"] = aggregate_id
        attributes["created_at"] = created_at
        attributes["sequence"] = row_id
    response = client.publish(PublishRequest.wrap(request), retry=None, timeout=15)
    return list(response.message_ids)
