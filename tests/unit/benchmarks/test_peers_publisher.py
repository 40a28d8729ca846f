"""How the peers' handlers publish: several at once share a request."""

import asyncio
from typing import Any

import pytest
from google.pubsub_v1.types import PublishRequest, PublishResponse

from benchmarks.peers.publisher import Publisher

BODY, ATTRIBUTES = b'{"event_id": "an-id"}', {"event_id": "an-id", "sequence": "7"}


class Taking:
    """Keeps what it is asked to publish."""

    def __init__(self) -> None:
        self.requests: list[PublishRequest] = []

    async def publish(self, request: PublishRequest, **_: Any) -> PublishResponse:
        """Answer with an id for each message."""
        self.requests.append(request)
        return PublishResponse(message_ids=[str(number) for number, _ in enumerate(request.messages)])


async def test_what_handlers_publish_at_the_same_time_shares_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many messages as one may have go at once, the rest when the turn ends; everybody waits for their own."""
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", "127.0.0.1:1")
    monkeypatch.setenv("PUBSUB_PROJECT_ID", "p")
    publisher, client = Publisher("t", expected=1_001), Taking()
    monkeypatch.setattr(publisher, "_client", client)

    await asyncio.gather(*(publisher.publish(BODY, ATTRIBUTES) for _ in range(1_001)))

    assert [len(request.messages) for request in client.requests] == [1_000, 1]
    first = client.requests[0].messages[0]
    assert (first.data, dict(first.attributes)) == (BODY, ATTRIBUTES)
    assert publisher.acknowledged == 1_001
    assert await publisher.everything() > 0
