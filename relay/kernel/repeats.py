"""Which of many failures alike is worth a line: the first at once, then a summary now and then, then the recovery.

Knows neither logs nor events: it is told what failed and what works again, and answers what to do about a line.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

# At most one line in so many seconds about what goes on failing.
EVERY_SECONDS = 60.0
# Changes (a first failure, a new kind of error, a recovery, a relapse) are told at once, so many of them in a row.
BURST = 6.0
# How many different errors of one subject are told as new. Further ones are told by the summaries alone.
MOST_ERRORS = 8
# How many subjects are remembered one by one. Those beyond share one memory for each kind of failure.
MOST_SUBJECTS = 512
# A subject that has worked for so long begins anew.
FORGET_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Write:
    """Tell this failure: the first of its subject, the first with this error, or the first after a recovery."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Tell nothing of this failure now."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Tell that it goes on."""

    failures: int  # since the subject last worked, this one included
    seconds: float  # since the first of them
    recoveries: int  # how often it seemed over in between, without a line


@dataclass(frozen=True, slots=True)
class Recovery:
    """Tell that it is over."""

    kind: str
    subject: str
    failures: int
    seconds: float  # from the first failure to the success that ended them
    recoveries: int  # how often it seemed over in between


Advice = Write | Hold | Summary


@dataclass(slots=True)
class _Episode:
    """The failures of one subject since it last worked, and what was told of them."""

    touched: float
    tokens: float = BURST
    refilled: float = 0.0
    last_line: float = 0.0
    failing: bool = False
    since: float = 0.0
    failures: int = 0
    recoveries: int = 0
    ended: float | None = None  # a recovery that was not told yet: when it was
    errors: set[Hashable] = field(default_factory=set)


class Repeats:
    """Remembers what fails, each kind and subject by itself, in bounded memory and by an injected clock."""

    def __init__(
        self,
        monotonic: Callable[[], float],
        every: float = EVERY_SECONDS,
        most_subjects: int = MOST_SUBJECTS,
    ) -> None:
        self._monotonic = monotonic
        self._every = every
        self._most = most_subjects
        self._episodes: dict[tuple[str, str | None], _Episode] = {}
        self._untold: set[tuple[str, str]] = set()

    def failed(self, kind: str, subject: str, error: Hashable) -> Advice:
        """A failure, and what to do about it. `error` says which failures are alike, whatever their texts say."""
        now = self._monotonic()
        key, episode = self._episode(kind, subject, now)
        relapse = not episode.failing
        if not episode.failures:
            episode.since = now
        episode.touched = now
        episode.failing = True
        episode.failures += 1
        if episode.ended is not None:
            episode.ended = None
            episode.recoveries += 1
            self._untold.discard((kind, subject))
        fresh = error not in episode.errors and len(episode.errors) < MOST_ERRORS and key[1] is not None
        if (fresh or relapse) and self._spend(episode, now):
            if len(episode.errors) < MOST_ERRORS:
                episode.errors.add(error)
            return Write()
        if now - episode.last_line >= self._every and self._spend(episode, now):
            return Summary(episode.failures, now - episode.since, episode.recoveries)
        return Hold()

    def worked(self, kind: str, subject: str) -> Recovery | None:
        """A success; the recovery to tell, when it ends failures and was not told a moment ago too often."""
        if not self._episodes:
            return None
        episode = self._episodes.get((kind, subject))
        if episode is None or not episode.failing:
            return None
        now = self._monotonic()
        episode.failing = False
        episode.touched = episode.ended = now
        if self._spend(episode, now):
            return self._over(kind, subject, episode)
        self._untold.add((kind, subject))
        return None

    def settle(self, kind: str, subject: str) -> None:
        """A success that another line tells of."""
        episode = self._episodes.get((kind, subject))
        if episode is not None and episode.failing:
            episode.ended = episode.touched = self._monotonic()
            self._over(kind, subject, episode)

    def failing(self, kind: str, subject: str) -> bool:
        """Whether its last word was a failure."""
        episode = self._episodes.get((kind, subject))
        return episode is not None and episode.failing

    def fails(self, kind: str) -> list[str]:
        """The subjects of this kind whose last word was a failure."""
        return [name for (of, name), episode in self._episodes.items() if of == kind and name and episode.failing]

    def due(self, *, end: bool = False) -> list[Recovery]:
        """The recoveries that were kept back and may be told now; at the `end`, all of them."""
        if not self._untold:
            return []
        now = self._monotonic()
        told = []
        for kind, subject in sorted(self._untold):
            episode = self._episodes.get((kind, subject))
            if episode is None:
                self._untold.discard((kind, subject))
            elif end or (now - episode.last_line >= self._every and self._spend(episode, now)):
                told.append(self._over(kind, subject, episode))
        return told

    def __len__(self) -> int:
        return len(self._episodes)

    def _episode(self, kind: str, subject: str, now: float) -> tuple[tuple[str, str | None], _Episode]:
        key: tuple[str, str | None] = (kind, subject)
        known = self._episodes.get(key)
        if known is not None and (known.failing or known.ended is not None or now - known.touched < FORGET_SECONDS):
            return key, known
        if known is None and len(self._episodes) >= self._most:
            self._forget(now)
        if known is None and len(self._episodes) >= self._most:
            key = (kind, None)
        episode = self._episodes.get(key) if key[1] is None else None
        if episode is None:
            episode = self._episodes[key] = _Episode(touched=now, refilled=now, last_line=now)
        return key, episode

    def _forget(self, now: float) -> None:
        """Make room: what has worked for long first, then what nobody has heard of for long."""
        for key, episode in list(self._episodes.items()):
            silent = now - episode.touched
            quiet = not episode.failing and episode.ended is None
            if silent >= (FORGET_SECONDS if quiet else 6 * FORGET_SECONDS):
                del self._episodes[key]

    def _spend(self, episode: _Episode, now: float) -> bool:
        """Take the right to one line: some at once, and then one each time that a summary would be due."""
        episode.tokens = min(BURST, episode.tokens + (now - episode.refilled) / self._every)
        episode.refilled = now
        if episode.tokens < 1:
            return False
        episode.tokens -= 1
        episode.last_line = now
        return True

    def _over(self, kind: str, subject: str, episode: _Episode) -> Recovery:
        ended = episode.touched if episode.ended is None else episode.ended
        recovery = Recovery(kind, subject, episode.failures, ended - episode.since, episode.recoveries)
        episode.failing, episode.failures, episode.recoveries, episode.ended = False, 0, 0, None
        self._untold.discard((kind, subject))
        return recovery
