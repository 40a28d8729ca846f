"""Topics of Google Pub/Sub: whether they are there, and creating those that are not."""

from enum import StrEnum
from typing import Self

from google.api_core import exceptions
from google.pubsub_v1.types import GetTopicRequest, Topic

from relay.brokers.pubsub_client import CALL_ERRORS, PubSubAddress, broker_error


class TopicState(StrEnum):
    """What is known of a topic, or was done to it."""

    EXISTS = "exists"
    MISSING = "missing"
    UNSEEN = "unseen"  # this account may not look
    CREATED = "created"


class PubSubTopics:
    """Looks at topics and creates them. Raises ConfigurationError where there are no credentials."""

    def __init__(self, address: PubSubAddress) -> None:
        self._client = address.publisher()

    async def look(self, name: str, seconds: float) -> TopicState:
        """Say whether the topic of this full name is there. Raises BrokerError."""
        try:
            await self._client.get_topic(GetTopicRequest(topic=name), retry=None, timeout=seconds)
        except exceptions.NotFound:
            return TopicState.MISSING
        except exceptions.PermissionDenied:
            return TopicState.UNSEEN
        except CALL_ERRORS as error:
            raise broker_error(error) from error
        return TopicState.EXISTS

    async def ensure(self, name: str, seconds: float) -> TopicState:
        """Create the topic of this full name unless it is there. Raises BrokerError."""
        try:
            await self._client.create_topic(Topic(name=name), retry=None, timeout=seconds)
        except exceptions.AlreadyExists:
            return TopicState.EXISTS
        except exceptions.PermissionDenied as error:
            # Who may not create may still see that there is nothing to create.
            if await self.look(name, seconds) is TopicState.EXISTS:
                return TopicState.EXISTS
            raise broker_error(error) from error
        except CALL_ERRORS as error:
            raise broker_error(error) from error
        return TopicState.CREATED

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the channel."""
        await self._client.transport.close()  # type: ignore[no-untyped-call]
