"""Where deliveries go that failed for good: the message as it was, with the reason in further attributes."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Final, Protocol

from consumers.delivery import Delivery
from consumers.outcome import Dead, Invalid
from relay.envelope import ATTRIBUTE_NAME_BYTES, ATTRIBUTE_VALUE_BYTES, RELAY_ATTRIBUTES
from relay.kernel.failure import redacted
from relay.kernel.line_redaction import Redaction

PREFIX: Final = "dead_letter_"
LEFT_OUT: Final = f"{PREFIX}attributes_left_out"
REPLAYED_FOR: Final = "replayed_for"
"""On a message that comes again out of dead letters: the one consumer that it is meant for."""
BURIED: Final = {"dead_letter": True}
"""The result with which a dead letter's event is completed: a replay makes the store forget such events alone.

Without it a replay that is repeated would have an event acted on again that meanwhile had its effect.
"""
_MOST_ATTRIBUTES = 100
# The broker's own names: what it adds, it adds itself, and it refuses them of anybody else.
_RESERVED = "goog"
# What Pub/Sub adds to a message that a dead-letter policy forwards. No publisher has set it.
_FORWARDED = "CloudPubSubDeadLetter"
# Without these a message loses what it is, what it belongs to, and its order; the publisher's others are its comments.
_FIRST_OF_ALL = (*RELAY_ATTRIBUTES, "traceparent", "tracestate")


class DeadLetters(Protocol):
    """A topic that keeps what failed."""

    topic: str

    async def open(self) -> None:
        """Look whether the topic is there. Raises ConfigurationError where it is not, BrokerError where it is away."""
        ...

    async def send(self, delivery: Delivery, attributes: Mapping[str, str]) -> None:
        """Publish the delivery's body with these attributes. Raises BrokerError where the broker did not take it."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...


class CarefulDeadLetters:
    """The same topic; what is said of an error has been through the user's own hook, as the delivery's line has."""

    def __init__(self, inner: DeadLetters, redaction: Redaction) -> None:
        self.topic = inner.topic
        self._inner = inner
        self._redaction = redaction
        self.open = inner.open
        self.close = inner.close

    async def send(self, delivery: Delivery, attributes: Mapping[str, str]) -> None:
        """Publish it."""
        known = {name: attributes[f"{PREFIX}{name}"] for name in ("code", "reason") if f"{PREFIX}{name}" in attributes}
        about = {name: attributes[name] for name in RELAY_ATTRIBUTES if name in attributes}
        about |= {name: attributes.get(f"{PREFIX}{name}", "") for name in ("consumer", "subscription")}
        said = self._redaction.words(
            "delivery_failed", **about, code=known.get("code", ""), error=known.get("reason", "")
        )
        left = {"code": said.code, "reason": said.error}
        careful = {f"{PREFIX}{name}": bounded(left[name]) for name in known}
        await self._inner.send(delivery, {**attributes, **{name: value for name, value in careful.items() if value}})


def attributes_of(  # noqa: PLR0913 -- whose it is, and why, each by its name
    delivery: Delivery,
    why: Dead | Invalid,
    *,
    consumer: str,
    subscription: str,
    attempts: int,
    now: datetime | None = None,
) -> dict[str, str]:
    """The original attributes, and why, after how many attempts, whose, and when.

    The broker takes 100 attributes of a certain size. Those of the reason have precedence, then the relay's own; what
    is left out for them is counted. What a handler gave as its reason is redacted: nobody knows what it quotes.
    """
    reason = {
        "consumer": consumer,
        "subscription": subscription,
        "code": redacted(str(why.code)),
        "reason": redacted(str(why.reason)),
        "kind": type(why).__name__.lower(),
        "attempts": str(attempts),
        "message_id": delivery.message_id,
        "ordering_key": delivery.ordering_key,
        "at": (now or datetime.now(UTC)).isoformat(),
    }
    added = {f"{PREFIX}{name}": bounded(value) for name, value in reason.items() if value}
    original = original_attributes(delivery.attributes)
    fitting = {name: original[name] for name in _by_worth(original) if _is_taken(name, original[name])}
    room = _MOST_ATTRIBUTES - len(added)
    if len(fitting) > room or len(fitting) < len(original):
        own = dict(islice(fitting.items(), room - 1))
        added[LEFT_OUT] = str(len(original) - len(own))
        return {**own, **added}
    return {**fitting, **added}


def original_attributes(attributes: Mapping[str, str]) -> dict[str, str]:
    """What the publisher gave the message, before it became a dead letter or came out of dead letters."""
    return {
        name: value
        for name, value in attributes.items()
        if not name.startswith((PREFIX, _RESERVED, _FORWARDED)) and name != REPLAYED_FOR
    }


def bounded(text: str, most: int = ATTRIBUTE_VALUE_BYTES) -> str:
    """As much of the beginning as the broker takes for a value; whole characters."""
    return text.encode(errors="replace")[:most].decode(errors="ignore")


def _by_worth(names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: name not in _FIRST_OF_ALL)


def _is_taken(name: str, value: str) -> bool:
    """Whether Pub/Sub takes it. It came from there; another source may take more."""
    return 1 <= len(name.encode()) <= ATTRIBUTE_NAME_BYTES and len(value.encode()) <= ATTRIBUTE_VALUE_BYTES
