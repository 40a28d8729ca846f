"""One dead letter as it lies on its subscription, and which of them somebody means."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from consumers.dead_letters import LEFT_OUT, PREFIX, REPLAYED_FOR, original_attributes
from consumers.decode import decode
from consumers.delivery import Delivery
from consumers.received import Received
from relay.patterns import matches

UNDECODABLE: Final = "UNDECODABLE"
FOREIGN: Final = "FOREIGN"
"""The code of what no consumer of this SDK has sent: forwarded by a dead-letter policy of Pub/Sub, or anybody's."""
ON_DEMAND: Final = frozenset({UNDECODABLE, FOREIGN})
"""What is replayed only when it is asked for by its code: the one fails again, the other's consumer is not known."""
# Of a dead-letter policy.
_POLICY = "CloudPubSubDeadLetterSource"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """What its attributes and its envelope say; the body stays where it was read."""

    message_id: str
    """The broker's name for the dead letter itself."""
    event_id: str
    event_type: str
    consumer: str
    """Whose event failed; empty where no consumer of this SDK has sent it."""
    subscription: str
    """Where the event was received."""
    code: str
    reason: str
    attempts: int | None
    at: str
    """When it failed, RFC 3339, by the consumer's clock."""
    ordering_key: str
    sequence: int | None
    """The order in which events were stored; None where a relay did not publish it."""
    attributes: Mapping[str, str]
    """The publisher's."""
    left_out: int
    """How many of those there was no room for."""

    @classmethod
    def read(cls, message_id: str, attributes: dict[str, str], body: bytes) -> Self:
        """The dead letter in a message."""

        def said(name: str) -> str:
            return attributes.get(f"{PREFIX}{name}", "")

        event = decode(Delivery(body=body, attributes=attributes))
        of_us = bool(said("consumer"))
        return cls(
            message_id=message_id,
            event_id=str(event.event_id),
            event_type=event.event_type,
            consumer=said("consumer"),
            subscription=said("subscription") or _forwarded_from(attributes),
            code=said("code") if of_us else FOREIGN,
            reason=said("reason"),
            attempts=_number(said("attempts") or attributes.get(f"{_POLICY}DeliveryCount", "")),
            at=said("at"),
            ordering_key=said("ordering_key"),
            sequence=event.sequence if isinstance(event, Received) else _number(attributes.get("sequence", "")),
            attributes=original_attributes(attributes),
            left_out=_number(attributes.get(LEFT_OUT, "")) or 0,
        )

    @property
    def in_order(self) -> tuple[bool, int, str]:
        """Sorts by the order in which the events were stored, and what has no place in it behind, as it failed."""
        return self.sequence is None, self.sequence or 0, self.at

    @property
    def to_publish(self) -> dict[str, str]:
        """The publisher's attributes, and whom it is meant for alone."""
        return {**self.attributes, REPLAYED_FOR: self.consumer} if self.consumer else dict(self.attributes)

    def as_json(self) -> dict[str, Any]:
        """What a script wants to know."""
        return {
            "event_id": self.event_id or None,
            "event_type": self.event_type or None,
            "consumer": self.consumer or None,
            "subscription": self.subscription or None,
            "code": self.code or None,
            "reason": self.reason or None,
            "attempts": self.attempts,
            "at": self.at or None,
            "ordering_key": self.ordering_key or None,
            "sequence": self.sequence,
            "message_id": self.message_id,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which dead letters are meant: all that every part of it allows."""

    consumer: str | None = None
    event_types: tuple[str, ...] = ()
    """Types, or beginnings with a `*`; one of them."""
    event_ids: frozenset[str] = frozenset()
    codes: frozenset[str] = frozenset()

    @property
    def narrows(self) -> bool:
        """Whether anything is left out by it."""
        return bool(self.consumer or self.event_types or self.event_ids or self.codes)

    def takes(self, letter: DeadLetter) -> bool:
        """Whether it is meant."""
        return (
            self.consumer in (None, letter.consumer)
            and (not self.event_types or any(matches(each, letter.event_type) for each in self.event_types))
            and (not self.event_ids or letter.event_id in self.event_ids)
            and (not self.codes or letter.code in self.codes)
        )

    def replays(self, letter: DeadLetter) -> bool:
        """Whether it is meant, and named where it has to be."""
        return self.takes(letter) and (letter.code not in ON_DEMAND or letter.code in self.codes)


def _forwarded_from(attributes: Mapping[str, str]) -> str:
    name = attributes.get(f"{_POLICY}Subscription", "")
    project = attributes.get(f"{_POLICY}SubscriptionProject", "")
    return f"projects/{project}/subscriptions/{name}" if name and project else name


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() else None
