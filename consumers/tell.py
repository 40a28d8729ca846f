"""What became of a delivery, as a value for whoever listens."""

from datetime import datetime

from consumers.clock import Clock
from consumers.dedup.protocol import Begun
from consumers.events import DeliverySettled, Fate
from consumers.job import Job
from relay.kernel.observe import Observe


class Tell:
    """Makes a DeliverySettled of what the road knows."""

    def __init__(self, consumer: str, observe: Observe, clock: Clock) -> None:
        self._consumer = consumer
        self._observe = observe
        self._clock = clock

    def __call__(  # noqa: PLR0913 -- what a log line says
        self,
        job: Job,
        fate: Fate,
        begun: Begun | None = None,
        seconds: float = 0.0,
        *,
        code: str = "",
        reason: str = "",
        again_in: float | None = None,
        error: BaseException | None = None,
    ) -> None:
        """Tell it."""
        lag = lag_of(job.subject.created_at, job.delivery.published_at, self._clock.wall())
        attempt = begun.attempt if begun else 0
        self._observe(
            DeliverySettled(self._consumer, job.subject, fate, attempt, seconds, lag, code, reason, again_in, error)
        )


def lag_of(stored_at: datetime | None, published_at: float, now: float) -> float | None:
    """Seconds since the event was stored, or else published; None where neither is known."""
    if stored_at is not None:
        return max(0.0, now - stored_at.timestamp())
    return max(0.0, now - published_at) if published_at else None
