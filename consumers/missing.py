"""An event that somebody other than the broker knows of, who tells it so that it can be stored if it is missing."""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic_core import to_json

from consumers.delivery import Delivery
from consumers.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """An event as it was, or would have been, delivered: stored for a consumer that does not have it yet.

    By `event_id` it is known. `data` is anything that pydantic writes as JSON. `sequence` is the order of an ordering
    key, as the outbox has it.
    """

    event_id: UUID | str
    event_type: str
    data: Any
    occurred_at: datetime
    version: int = 1
    actor: Mapping[str, Any] | None = None
    aggregate_type: str = ""
    aggregate_id: str = ""
    sequence: int | None = None
    ordering_key: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)

    def delivery(self) -> Delivery:
        """The message that would have brought it. Raises ValueError where no JSON can be made of it."""
        body = to_json(
            {
                "event_id": self.event_id,
                "event_type": self.event_type,
                "version": self.version,
                "occurred_at": self.occurred_at,
                "actor": self.actor,
                "data": self.data,
            }
        )
        relays = {
            "event_id": str(self.event_id),
            "event_type": self.event_type,
            "aggregate_type": self.aggregate_type,
            "aggregate_id": self.aggregate_id,
            **({} if self.sequence is None else {"sequence": str(self.sequence)}),
        }
        return Delivery(body=body, attributes={**dict(self.attributes), **relays}, ordering_key=self.ordering_key)


# Called with a position, None at first, and how many events to answer with; answers with them and the next position.
TellMissing = Callable[[Any, int], Awaitable[tuple[Sequence[Missing], Any]]]


def checked_teller(consumer: str, function: TellMissing) -> TellMissing:
    """The function, if it can be called as such a one. Raises ConfigurationError."""
    if not inspect.iscoroutinefunction(function):
        raise ConfigurationError(f"consumer {consumer!r}: what tells its events has to be an async def")
    try:
        inspect.signature(function).bind(None, 1)
    except TypeError:
        raise ConfigurationError(
            f"consumer {consumer!r}: what tells its events has to take (position, page), and takes "
            f"{inspect.signature(function)}"
        ) from None
    return function
