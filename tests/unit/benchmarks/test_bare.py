"""What the hand-written loops send: it has to be what the relay sends, or their figures are of other work."""

from typing import Any, cast

from google.pubsub_v1.services.publisher import PublisherClient
from google.pubsub_v1.types import PublishRequest, PublishResponse

from benchmarks import bare

ROW = (b"7", b"an-id", b"order.paid", b"order", b"o-1", b'{"event_id": "an-id"}', b"2026-01-01T00:00:00.000000Z")
ATTRIBUTES = {
    "event_id": "an-id",
    "event_type": "order.paid",
    "aggregate_type": "order",
    "aggregate_id": "o-1",
    "created_at": "2026-01-01T00:00:00.000000Z",
    "sequence": "7",
}


class Taking:
    """Keeps what it is asked to publish."""

    def __init__(self) -> None:
        self.requests: list[PublishRequest] = []

    def publish(self, request: PublishRequest, **_: Any) -> PublishResponse:
        """Answer with an id for each message."""
        self.requests.append(request)
        return PublishResponse(message_ids=[str(number) for number, _ in enumerate(request.messages)])


def test_a_row_as_postgres_writes_it_is_the_message_that_the_relay_would_send() -> None:
    """Bytes are taken for text, and nothing is lost."""
    client = Taking()

    ids = bare.publish(cast("PublisherClient", client), "projects/p/topics/t", [ROW, ROW])

    (request,) = client.requests
    assert (ids, request.topic, len(request.messages)) == (["0", "1"], "projects/p/topics/t", 2)
    assert (request.messages[1].data, dict(request.messages[1].attributes)) == (ROW[5], ATTRIBUTES)
