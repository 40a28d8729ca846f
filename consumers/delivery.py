"""One delivery of one message: what a source hands over, and what it wants to know in the end."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True, eq=False, kw_only=True)
class Delivery:
    """A message that a source holds for us until it is acknowledged or given back."""

    body: bytes
    attributes: dict[str, str]
    message_id: str = ""
    ordering_key: str = ""
    published_at: float = 0.0
    """By the broker's clock, in seconds since 1970; 0 where it is not known."""
    attempt: int = 0
    """What the broker counted, from 1; 0 where it does not count."""
    recipient: str = ""
    """Whom it is for, of those to whom an event was fanned out."""
    lane: str = ""
    """What is worked on one at a time, where the source knows better than its ordering key."""
    first_attempt_at: float = 0.0
    """In seconds since 1970; 0 where the source does not know."""
    handle: Any = field(default=None, repr=False)
    """The source's own."""
