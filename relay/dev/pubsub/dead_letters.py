"""Dead letters: a message as it goes to the dead-letter topic, with where it comes from."""

from datetime import UTC, datetime
from typing import Any, Final

from relay.dev.pubsub import wire

_PREFIX: Final = "CloudPubSubDeadLetterSource"
_MILLISECOND: Final = 1_000_000  # nanoseconds


def dead_letter(message: bytes, subscription: str, attempts: int) -> Any:
    """Return a stored message with the attributes of a dead letter; body, key and other attributes stay.

    The subscription goes by its full name. The topic gives the message another id and time.
    """
    letter = wire.PubsubMessage.FromString(message)
    _, project, _, name = subscription.split("/")
    letter.attributes[f"{_PREFIX}DeliveryCount"] = str(attempts)
    letter.attributes[f"{_PREFIX}Subscription"] = name
    letter.attributes[f"{_PREFIX}SubscriptionProject"] = project
    letter.attributes[f"{_PREFIX}TopicPublishTime"] = _written(letter.publish_time)
    letter.ClearField("message_id")
    letter.ClearField("publish_time")
    return letter


def _written(time: Any) -> str:
    """Write a time as the service does here: 2026-01-31T12:00:00.123+00:00."""
    whole = datetime.fromtimestamp(time.seconds, UTC).replace(microsecond=time.nanos // _MILLISECOND * 1_000)
    return whole.isoformat(timespec="milliseconds")
