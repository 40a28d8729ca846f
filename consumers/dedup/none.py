"""No deduplication: every delivery is acted on."""

from datetime import timedelta
from typing import Any

from consumers.attempts import Attempts
from consumers.dedup.protocol import Begun, End, Mode, OnLost
from consumers.delivery import Delivery
from consumers.outcome import Defer, Retry
from consumers.received import Received


class NoDedup:
    """At least once: for handlers that repeat nothing when they run again."""

    mode = Mode.NONE
    durable = False

    def __init__(self) -> None:
        self._attempts = Attempts()

    async def open(self, on_lost: OnLost, retention: timedelta | None) -> list[str]:  # noqa: ARG002 -- nothing is ever lost
        """Begin."""
        return []

    async def begin(self, event: Received[Any], delivery: Delivery) -> Begun:
        """It may always be acted on."""
        return Begun(event, self._attempts.begin(event.event_id, delivery.attempt))

    async def complete(self, begun: Begun, end: End) -> None:  # noqa: ARG002 -- nothing is kept
        """Forget how often it was tried."""
        self._attempts.forget(begun.event.event_id)

    async def release(
        self,
        begun: Begun,
        why: Retry | Defer | None = None,  # noqa: ARG002 -- nothing is kept
        *,
        counted: bool,
        rest: float = 0.0,  # noqa: ARG002 -- it rests here
    ) -> None:
        """Remember the attempt."""
        if counted:
            self._attempts.failed(begun.event.event_id, begun.attempt)

    def abandon(self, begun: Begun) -> None:
        """Nothing is held."""

    def give_up(self) -> None:
        """Nothing is asked."""

    async def close(self) -> None:
        """Nothing is held."""
