"""Events as a test finds them in the outbox."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Self
from uuid import UUID


class State(StrEnum):
    """What has become of an event."""

    PENDING = "pending"
    PUBLISHED = "published"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class EmittedEvent:
    """An event in the outbox: what was emitted, and what the relay has made of it."""

    sequence: int
    event_id: UUID
    event_type: str
    version: int
    occurred_at: datetime
    actor: Mapping[str, Any] | None
    data: Any
    aggregate_type: str
    aggregate_id: str
    topic: str | None
    """The one that the event names; once it is published, where it went."""
    ordering_key: str | None
    dedup_key: str | None
    attributes: Mapping[str, str]
    created_at: datetime
    available_at: datetime | None
    """When it is due, where it was scheduled or waits for its next attempt."""
    state: State
    message_id: str | None
    published_at: datetime | None
    failed_at: datetime | None
    failure_reason: str | None
    attempt_count: int
    """Attempts that the event itself paid for."""
    error_code: str | None
    error: str | None

    @classmethod
    def of_text(cls, text: str | bytes) -> Self:
        """Read a row of `emitted.sql`."""
        row: dict[str, Any] = json.loads(text)
        payload = row.pop("payload")
        row["event_id"] = UUID(row["event_id"])
        for name in ("created_at", "available_at", "published_at", "failed_at"):
            row[name] = row[name] and datetime.fromisoformat(row[name])
        return cls(
            **row,
            version=payload["version"],
            occurred_at=datetime.fromisoformat(payload["occurred_at"]),
            actor=payload["actor"],
            data=payload["data"],
            state=State.FAILED if row["failed_at"] else State.PUBLISHED if row["published_at"] else State.PENDING,
        )
