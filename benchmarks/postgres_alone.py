"""The loop of `benchmarks.limit` with a broker that takes everything at once: `python -m benchmarks.postgres_alone`."""

from typing import Any, cast

from google.pubsub_v1.services.publisher import PublisherClient
from google.pubsub_v1.types import PublishRequest, PublishResponse

from benchmarks.limit import main

_MESSAGE_ID = "1234567890123456"


class AtOnce:
    """Takes everything, and keeps nothing."""

    def publish(self, request: PublishRequest, **_: Any) -> PublishResponse:
        """Answer as the broker does."""
        return PublishResponse(message_ids=[_MESSAGE_ID] * len(request.messages))


if __name__ == "__main__":
    main("nowhere", cast("PublisherClient", AtOnce()))
