"""How long a delivery waits for its next attempt, and when there is none."""

from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from consumers.clock import Clock
from consumers.job import Job
from consumers.outcome import Dead, Retry
from consumers.retry import UNLIMITED, RetryPolicy
from relay.kernel.backoff import Jitter, uniform
from relay.kernel.code_duration import read

# The broker drops what nobody acknowledged in time. We give up before: a dead letter is kept, a dropped message is not.
_MARGIN = 0.1
_MOST_MARGIN = timedelta(hours=6)
_MOST_KNOWN = 100_000
# Whoever defers for longer is asked again then, and may do so once more.
_LONGEST_DEFERRAL = timedelta(days=30)


class Patience:
    """Applies the retry policy, within the time for which the subscription keeps a message."""

    def __init__(
        self,
        retention: timedelta | None,
        clock: Clock,
        jitter: Jitter = uniform,
        random: Callable[[], float] | None = None,
        *,
        most_deferrals: int = UNLIMITED,
    ) -> None:
        self._most_deferrals = most_deferrals
        self._retention = retention
        self._clock = clock
        self._jitter = jitter
        self._random = random or (lambda: jitter(1.0))
        # Of messages that failed here, since when they are tried: they may be given back, and come again as new ones.
        self._tried_since: OrderedDict[str, float] = OrderedDict()

    def next_attempt(self, job: Job, policy: RetryPolicy, attempt: int, outcome: Retry) -> float | Dead:
        """Seconds to the attempt after this one, or why there is none."""
        since = self._since(job)
        delay = policy.next(
            attempt,
            datetime.fromtimestamp(self._clock.wall(), UTC),
            datetime.fromtimestamp(since, UTC),
            self._random,
            asked=None if outcome.delay is None else read(outcome.delay),
        )
        if delay is None:
            self._tried_since.pop(job.delivery.message_id, None)
            return Dead(f"no attempt is left after {attempt}: {outcome.reason}", outcome.code)
        if policy.max_duration is not None and job.delivery.message_id:
            self._remember(job.delivery.message_id, since)
        return self._kept(job, delay.total_seconds(), outcome.reason)

    def deferred(self, job: Job, deferrals: int, seconds: float) -> float | Dead:
        """Seconds that it may be deferred, after so many times before, or why it cannot be."""
        if self._most_deferrals != UNLIMITED and deferrals >= self._most_deferrals:
            return Dead(f"deferred {deferrals} times, and to be deferred once more", "DEFERRED_TOO_OFTEN")
        return self._kept(job, min(seconds, _LONGEST_DEFERRAL.total_seconds()), "deferred again and again")

    def jittered(self, seconds: float) -> float:
        """A pause, and up to a tenth more."""
        return seconds + self._jitter(seconds / 10)

    def _since(self, job: Job) -> float:
        """When the first attempt began; where that was elsewhere, when the message was first seen here."""
        seen = self._tried_since.get(job.delivery.message_id) or job.seen_at
        return job.first_attempt_at or max(job.delivery.published_at, seen) or self._clock.wall()

    def _remember(self, message_id: str, since: float) -> None:
        self._tried_since[message_id] = since
        self._tried_since.move_to_end(message_id)
        if len(self._tried_since) > _MOST_KNOWN:
            self._tried_since.popitem(last=False)

    def _kept(self, job: Job, seconds: float, reason: str) -> float | Dead:
        """No longer than the message is kept; dead where that is over."""
        published = job.delivery.published_at
        if self._retention is None or not published:
            return seconds
        margin = min(self._retention * _MARGIN, _MOST_MARGIN)
        left = published + (self._retention - margin).total_seconds() - self._clock.wall()
        if left <= 0:
            return Dead(f"the subscription soon drops the message: {reason}", "EXPIRES")
        return min(seconds, left)
