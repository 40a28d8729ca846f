"""From a message to the event in it, or the reason why there is none."""

import re
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import AwareDatetime, Field, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails
from typing_extensions import TypedDict  # pydantic takes that of Python from 3.12 on

from consumers.delivery import Delivery
from consumers.received import Received, Undecodable
from relay.envelope import VERSION_MOST

_NIL = UUID(int=0)
_SHOWN = 64
_SEQUENCE = re.compile(r"[0-9]{1,19}")  # as many digits as a bigint has


class _Envelope(TypedDict):
    event_id: UUID
    event_type: Annotated[str, Field(min_length=1)]
    version: Annotated[int, Field(ge=1, le=VERSION_MOST)]
    occurred_at: AwareDatetime
    actor: dict[str, Any] | None
    data: Any


_ENVELOPE = TypeAdapter(_Envelope)


def decode(delivery: Delivery) -> Received[Any] | Undecodable:
    """Read the envelope in the body; the attributes add what the relay knows of the row."""
    attributes = delivery.attributes
    try:
        envelope = _ENVELOPE.validate_json(delivery.body)
    except ValidationError as error:
        return undecodable(delivery, "; ".join(map(_sentence, error.errors(include_url=False)[:3])))
    if envelope["event_id"] == _NIL:
        return undecodable(delivery, "event_id is the nil UUID, by which nothing can be deduplicated")
    sequence = attributes.get("sequence", "")
    return Received(
        event_id=envelope["event_id"],
        event_type=envelope["event_type"],
        version=envelope["version"],
        occurred_at=envelope["occurred_at"],
        data=envelope["data"],
        actor=envelope["actor"],
        aggregate_type=attributes.get("aggregate_type", ""),
        aggregate_id=attributes.get("aggregate_id", ""),
        sequence=int(sequence) if _SEQUENCE.fullmatch(sequence) else None,
        created_at=moment(attributes.get("created_at")),
        ordering_key=delivery.ordering_key,
        message_id=delivery.message_id,
        recipient=delivery.recipient,
        attributes=attributes,
    )


def undecodable(delivery: Delivery, reason: str) -> Undecodable:
    """What is known of a message that holds no event."""
    attributes = delivery.attributes
    return Undecodable(
        code="UNDECODABLE",
        reason=f"the body is no envelope: {reason}",
        event_id=attributes.get("event_id", ""),
        event_type=attributes.get("event_type", ""),
        aggregate_type=attributes.get("aggregate_type", ""),
        aggregate_id=attributes.get("aggregate_id", ""),
        created_at=moment(attributes.get("created_at")),
        message_id=delivery.message_id,
        ordering_key=delivery.ordering_key,
    )


def moment(text: str | None) -> datetime | None:
    """Read an attribute that should be a moment with its zone; None where it is not."""
    try:
        found = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return found if found.tzinfo else None


def _sentence(fault: ErrorDetails) -> str:
    """What is wrong and where, without the value: it may be somebody's data."""
    place = ".".join(map(str, fault["loc"]))
    return f"{place}: {fault['msg']}"[: 4 * _SHOWN] if place else fault["msg"][: 4 * _SHOWN]
