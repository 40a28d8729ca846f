"""An event as its handler receives it, and a message that is none."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar
from uuid import UUID

Data = TypeVar("Data")


# Without slots: with them, Python 3.11 cannot make a `Received[OrderPaid](…)`, as a test of a handler may.
@dataclass(frozen=True, kw_only=True)
class Received(Generic[Data]):
    """One event. `data` is an instance of the handler's model, or without one what JSON makes of it."""

    event_id: UUID
    event_type: str
    version: int
    occurred_at: datetime
    data: Data
    actor: Mapping[str, Any] | None = None
    aggregate_type: str = ""
    aggregate_id: str = ""
    sequence: int | None = None
    """The order in which events were stored; None where the message did not come from a relay."""
    created_at: datetime | None = None
    """When the event was stored."""
    ordering_key: str = ""
    message_id: str = ""
    """The broker's name for the message. The same event published twice has two; never deduplicate by it."""
    recipient: str = ""
    """Whom this delivery is for, where the event was fanned out; empty for the event itself."""
    attributes: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Undecodable:
    """A message that holds no event, with what its attributes say it was meant to be."""

    code: str
    reason: str
    event_id: str
    event_type: str
    aggregate_type: str
    aggregate_id: str
    created_at: datetime | None
    message_id: str
    ordering_key: str


Subject = Received[Any] | Undecodable
