"""Whether a topic can be published to, asked without publishing and without more than the right to publish."""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Self

from google.api_core import exceptions
from google.pubsub_v1.types import GetTopicRequest

from relay.brokers.pubsub_client import CALL_ERRORS, PubSubAddress, broker_error

_PUBLISH = "pubsub.topics.publish"


class Access(Enum):
    """What this account can do with a topic."""

    GRANTED = auto()  # it may publish, or the service (an emulator) has no permissions
    REFUSED = auto()  # the topic is there; it may not publish
    MISSING = auto()  # there is no such topic
    HIDDEN = auto()  # it may not publish, nor see whether the topic is there
    UNKNOWN = auto()  # a service without permissions to ask for, and no right to see


@dataclass(frozen=True, slots=True)
class TopicAccess:
    """The full name of a topic, and what this account can do with it."""

    topic: str
    access: Access


class PubSubAccess:
    """Asks about topics. Raises ConfigurationError where there are no credentials."""

    def __init__(self, address: PubSubAddress) -> None:
        self._address = address
        self._client = address.publisher()

    async def ask(self, topic: str, seconds: float) -> TopicAccess:
        """Ask about one topic; each of at most two questions takes no longer than this. Raises BrokerError."""
        name = self._address.topic(topic)
        try:
            return TopicAccess(name, await self._access(name, seconds))
        except CALL_ERRORS as error:
            raise broker_error(error) from error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the channel."""
        await self._client.transport.close()  # type: ignore[no-untyped-call]

    async def _access(self, name: str, seconds: float) -> Access:
        unseen = Access.HIDDEN
        try:
            # The one question that everybody may ask, about their own rights.
            request = {"resource": name, "permissions": [_PUBLISH]}
            answer = await self._client.test_iam_permissions(request, retry=None, timeout=seconds)
            if _PUBLISH in answer.permissions:
                return Access.GRANTED
            seen = Access.REFUSED
        except (exceptions.NotFound, exceptions.Forbidden):
            seen = Access.REFUSED
        except exceptions.MethodNotImplemented:
            # Emulators know topics and no permissions.
            seen, unseen = Access.GRANTED, Access.UNKNOWN
        try:
            await self._client.get_topic(GetTopicRequest(topic=name), retry=None, timeout=seconds)
        except exceptions.NotFound:
            return Access.MISSING
        except exceptions.Forbidden:
            return unseen
        return seen
