"""The road from emit to the subscriber, as a service and an operator use it."""

import json

import psycopg

from relay import emit
from tests.support.commands import Commands
from tests.support.outbox import event
from tests.support.pubsub import Channel, PubSubSide


async def test_a_committed_event_reaches_the_subscriber_once(
    relay: Commands, database: str, pubsub: PubSubSide, channel: Channel
) -> None:
    """Commit, tick, receive: body and attributes are what the row says."""
    with psycopg.connect(database) as connection:
        emitted = emit(connection, event(7, attributes={"tenant": "acme"}))

    done = relay("tick")

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["runners"]["publish"]["updated"] == 1
    (message,) = await pubsub.drain(channel)
    body = json.loads(message.data)
    assert body["event_id"] == str(emitted.event_id)
    assert body["data"]["number"] == 7
    with psycopg.connect(database) as connection:
        row = connection.execute("select message_id, created_at, published_at from outbox_events").fetchone()
    assert row
    assert row[0] == message.message_id
    attributes = dict(message.attributes)
    assert attributes.pop("created_at") == row[1].strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    assert attributes == {
        "event_id": str(emitted.event_id),
        "event_type": "order.paid",
        "aggregate_type": "order",
        "aggregate_id": "7",
        "sequence": str(emitted.sequence),
        "tenant": "acme",
    }
