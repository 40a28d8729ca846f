"""Subscriptions of Google Pub/Sub: what they say of themselves, and creating those that are not there."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Self

from google.api_core import exceptions
from google.protobuf.duration_pb2 import Duration
from google.pubsub_v1.types import ExpirationPolicy, GetSubscriptionRequest, Subscription

from relay.brokers.pubsub_client import CALL_ERRORS, PubSubAddress, broker_error

_ACK_DEADLINE_SECONDS = 60
# Where nothing is said.
_UNUSED_AT_MOST = timedelta(days=31)


@dataclass(frozen=True, slots=True)
class Subscribed:
    """What is known of a subscription, in full names."""

    name: str
    topic: str | None
    """What it reads; None where that topic was deleted, and it receives nothing more."""
    retention: timedelta
    """How long it keeps a message that nobody acknowledges."""
    expires: timedelta | None
    """How long it may be unused until it is deleted with all that it keeps; None is never."""
    created: bool = False


class PubSubSubscriptions:
    """Looks at subscriptions and creates them. Raises ConfigurationError where there are no credentials."""

    def __init__(self, address: PubSubAddress) -> None:
        self._address = address
        self._client = address.subscriber()

    async def look(self, name: str, seconds: float) -> Subscribed | None:
        """What a subscription says about itself; None where there is none of this name. Raises BrokerError."""
        request = GetSubscriptionRequest(subscription=self._address.subscription(name))
        try:
            return _subscribed(await self._client.get_subscription(request, retry=None, timeout=seconds))
        except exceptions.NotFound:
            return None
        except CALL_ERRORS as error:
            raise broker_error(error) from error

    async def ensure(self, name: str, topic: str, retention: timedelta, seconds: float) -> Subscribed:
        """Create a subscription that keeps messages for so long, and that never expires, unless there is one.

        One that is there is not changed: look at what is answered. Raises BrokerError.
        """
        full = self._address.subscription(name)
        wanted = Subscription(
            name=full,
            topic=self._address.topic(topic),
            ack_deadline_seconds=_ACK_DEADLINE_SECONDS,
            message_retention_duration=_duration(retention),
            expiration_policy=ExpirationPolicy(),
        )
        try:
            made = await self._client.create_subscription(wanted, retry=None, timeout=seconds)
        except exceptions.AlreadyExists as error:
            found = await self.look(full, seconds)
            if found is None:
                raise broker_error(error) from error
            return found
        except exceptions.PermissionDenied as error:
            # Who may not create may still see that there is nothing to create.
            try:
                found = await self.look(full, seconds)
            except Exception:  # noqa: BLE001 -- what was asked for is what is told of
                found = None
            if found is None:
                raise broker_error(error) from error
            return found
        except CALL_ERRORS as error:
            raise broker_error(error) from error
        return _subscribed(made, created=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the channel."""
        await self._client.transport.close()  # type: ignore[no-untyped-call]


def _subscribed(found: Subscription, *, created: bool = False) -> Subscribed:
    # Of the class that protobuf made: the wrapper's types are not those of its values.
    raw = Subscription.pb(found)
    expires: timedelta | None = _UNUSED_AT_MOST
    if raw.HasField("expiration_policy"):
        policy = raw.expiration_policy
        expires = policy.ttl.ToTimedelta() if policy.HasField("ttl") else None
    return Subscribed(
        name=raw.name,
        topic=None if raw.topic == "_deleted-topic_" else raw.topic,
        retention=raw.message_retention_duration.ToTimedelta(),
        expires=expires,
        created=created,
    )


def _duration(length: timedelta) -> Duration:
    written = Duration()
    written.FromTimedelta(length)
    return written
