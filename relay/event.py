"""What a service says has happened, checked before it reaches the database."""

from datetime import datetime
from typing import Annotated, Any, Self
from uuid import UUID

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from relay import envelope

NIL = UUID(int=0)


def _text(most: int) -> AfterValidator:
    def check(value: str) -> str:
        size = len(value.encode())
        if not 1 <= size <= most:
            raise ValueError(f"has {size} bytes, the limit is 1 to {most}")
        if "\0" in value:
            raise ValueError("contains a NUL character, which Postgres cannot store")
        return value

    return AfterValidator(check)


Name = Annotated[str, _text(envelope.NAME_BYTES)]
AggregateId = Annotated[str, _text(envelope.ATTRIBUTE_VALUE_BYTES)]
Topic = Annotated[str, _text(envelope.TOPIC_BYTES)]
OrderingKey = Annotated[str, _text(envelope.ORDERING_KEY_BYTES)]
DedupKey = Annotated[str, _text(envelope.DEDUP_KEY_BYTES)]


def _not_nil(value: UUID) -> UUID:
    if value == NIL:
        raise ValueError("is the nil UUID, by which no consumer can deduplicate")
    return value


class Actor(BaseModel):
    """Who caused the event; further fields travel with it."""

    model_config = ConfigDict(frozen=True, extra="allow")

    type: Name
    id: Annotated[str, _text(envelope.ATTRIBUTE_VALUE_BYTES)]


class Event(BaseModel):
    """A fact, to be emitted in the transaction that makes it true.

    `data` is any JSON value; dates, UUIDs, decimals and pydantic models in it are written the way pydantic writes them.
    What is left out is decided at emit: the event_id (time-ordered), occurred_at (now), the topic (by routing).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    event_type: Name
    aggregate_type: Name
    aggregate_id: AggregateId
    data: Any
    event_id: Annotated[UUID, AfterValidator(_not_nil)] | None = None
    version: Annotated[int, Field(ge=1, le=999_999_999)] = 1
    occurred_at: AwareDatetime | None = None
    actor: Actor | None = None
    topic: Topic | None = None
    ordering_key: OrderingKey | None = None
    dedup_key: DedupKey | None = None
    available_at: AwareDatetime | None = None
    attributes: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.ordering_key is not None and self.available_at is not None:
            raise ValueError(
                "available_at and ordering_key exclude each other: a scheduled event would hold up its key"
            )
        if fault := envelope.attributes_fault(self.attributes):
            raise ValueError(fault)
        return self


def rfc3339(moment: datetime) -> str:
    """A moment as the outbox and the broker write it."""
    return moment.isoformat(timespec="microseconds")
