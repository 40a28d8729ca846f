"""Whether the deduplication store answers; while it does not, nothing is begun."""

from collections.abc import Callable

from consumers.clock import Clock
from consumers.events import StoreAway, StoreBack
from relay.kernel.backoff import Backoff, Delay, Jitter, uniform
from relay.kernel.observe import Observe

_PAUSE = Delay(first=0.25, most=5.0, jitter=0.25)


class Gate:
    """Fails closed: pauses the consumer at the first call that the store did not answer, until one is answered."""

    def __init__(  # noqa: PLR0913 -- each by its name
        self,
        *,
        consumer: str,
        pause: Callable[[float], None],
        resume: Callable[[], None],
        observe: Observe,
        clock: Clock,
        jitter: Jitter = uniform,
    ) -> None:
        self._consumer = consumer
        self._pause = pause
        self._resume = resume
        self._observe = observe
        self._clock = clock
        self._backoff = Backoff(_PAUSE, jitter)
        self._away_since: float | None = None
        self._next_look = 0.0

    @property
    def open(self) -> bool:
        """Whether the store answered the last time."""
        return self._away_since is None

    def failed(self, error: BaseException) -> float:
        """A call was in vain; the seconds to wait before the next one. Many that fail at once are one failure."""
        now = self._clock.monotonic()
        if self._away_since is None:
            self._away_since = now
        if now >= self._next_look:
            pause = self._backoff.next()
            self._next_look = now + pause
            self._pause(pause)
            self._observe(StoreAway(self._consumer, error, pause))
        return max(0.0, self._next_look - now)

    def worked(self) -> None:
        """A call was answered."""
        if self._away_since is None:
            return
        away, self._away_since, self._next_look = self._clock.monotonic() - self._away_since, None, 0.0
        self._backoff.reset()
        self._resume()
        self._observe(StoreBack(self._consumer, away))
