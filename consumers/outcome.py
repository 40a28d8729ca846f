"""What a handler may answer, and what becomes of its delivery then."""

from dataclasses import dataclass
from typing import Any

from relay.kernel import code_duration as duration
from relay.kernel.code_duration import Duration


@dataclass(frozen=True, slots=True)
class Done:
    """The effect is there. A handler that returns nothing says the same."""

    result: Any = None
    """Kept with the completion where the consumer's deduplication keeps results; JSON."""


@dataclass(frozen=True, slots=True)
class Skip:
    """There was nothing to do: completed, acknowledged, and counted apart."""

    reason: str

    def __post_init__(self) -> None:
        _texts(self, "reason")


@dataclass(frozen=True, slots=True)
class Retry:
    """It did not work this time. Costs an attempt; the retry policy says when the next one is, unless `delay` does."""

    reason: str
    code: str = "RETRY"
    delay: Duration | None = None
    """A timedelta, seconds, or a text such as "30s"."""

    def __post_init__(self) -> None:
        _texts(self, "reason", "code")
        if self.delay is not None:
            duration.read(self.delay)


@dataclass(frozen=True, slots=True)
class Defer:
    """Not now. Costs no attempt; bounded by how long the subscription keeps the message, or INBOX_MAX_DEFERS."""

    delay: Duration
    """A timedelta, seconds, or a text such as "30s"."""

    def __post_init__(self) -> None:
        duration.read(self.delay)


@dataclass(frozen=True, slots=True)
class Dead:
    """It will never work: to the dead-letter topic, completed, acknowledged."""

    reason: str
    code: str = "DEAD"

    def __post_init__(self) -> None:
        _texts(self, "reason", "code")


@dataclass(frozen=True, slots=True)
class Invalid:
    """The event itself is wrong: to the dead-letter topic as `Dead`, and counted apart."""

    reason: str
    code: str = "INVALID"

    def __post_init__(self) -> None:
        _texts(self, "reason", "code")


@dataclass(frozen=True, slots=True)
class Sent:
    """A provider has taken it, and will say later what became of it: see `Consumer.confirm`. Needs an inbox."""

    ticket: str
    """By which the provider is asked; up to 4,000 characters."""

    def __post_init__(self) -> None:
        _texts(self, "ticket")


Outcome = Done | Skip | Retry | Defer | Dead | Invalid | Sent
OUTCOMES = (Done, Skip, Retry, Defer, Dead, Invalid, Sent)


def _texts(outcome: object, *names: str) -> None:
    # A handler that answers with its exception, or with a number, means what that says.
    for name in names:
        given = getattr(outcome, name)
        if not isinstance(given, str):
            object.__setattr__(outcome, name, str(given))
