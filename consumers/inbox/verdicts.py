"""What a confirming function's answer about one send comes to."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from consumers.confirmers import Confirmer
from consumers.errors import UsageError
from consumers.events import Verdict
from consumers.handlers import Handlers, Meant, TooNew, TooOld, Unhandled
from consumers.inbox.tickets import Claimed, Said
from consumers.inbox.words import code_of, text
from consumers.outcome import Dead, Defer, Done, Invalid, Retry
from relay.kernel.code_duration import read
from relay.kernel.failure import sentence

# No send is asked about more often, whatever its function answers.
_SHORTEST_REST: Final = 1.0
UNKNOWN: Final = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class Judge:
    """Applies the handlers' retry policies, and the bound after which nobody asks any more."""

    handlers: Handlers
    wall: Callable[[], float]
    chance: Callable[[], float]

    def said(self, confirmer: Confirmer, claimed: Claimed, answer: Any) -> Said:
        """What becomes of it. Raises UsageError where the answer is none that can be given about a send."""
        match answer:
            case None | Done():
                return Said(claimed=claimed, verdict=Verdict.CONFIRMED)
            case Retry():
                return self._again(claimed, answer)
            case Dead(reason, code):
                return _failed(claimed, Verdict.DEAD, code, reason)
            case Invalid(reason, code):
                return _failed(claimed, Verdict.INVALID, code, reason)
            case Defer(delay):
                return open_still(confirmer, claimed, max(0.0, read(delay).total_seconds()))
            case BaseException():
                raise UsageError(f"{confirmer.name} failed about one of them: {sentence(answer)}") from answer
            case _:
                raise UsageError(
                    f"{confirmer.name} answered with a {type(answer).__name__} about one of them; answer "
                    "for each with Done() or None, Retry, Dead, Invalid, or Defer"
                )

    def _again(self, claimed: Claimed, retry: Retry) -> Said:
        ticket = claimed.ticket
        match self.handlers.resolve(ticket.event_type, ticket.version, ticket.recipient):
            case Meant(handler) | TooNew(handler) | TooOld(handler):
                delay = handler.retry.next(
                    max(1, ticket.attempt),
                    datetime.fromtimestamp(self.wall(), UTC),
                    claimed.first_started_at,
                    self.chance,
                    asked=None if retry.delay is None else read(retry.delay),
                )
            case Unhandled():
                return _failed(claimed, Verdict.DEAD, "UNKNOWN_EVENT_TYPE", f"nobody sends it again: {retry.reason}")
        if delay is None:
            return _failed(
                claimed, Verdict.DEAD, retry.code, f"no attempt is left after {ticket.attempt}: {retry.reason}"
            )
        return Said(
            claimed=claimed,
            verdict=Verdict.RETRIED,
            rest=delay.total_seconds(),
            code=code_of(retry.code),
            error=text(retry.reason),
        )


def open_still(confirmer: Confirmer, claimed: Claimed, rest: float) -> Said:
    """Nobody knows yet: asked again after a rest, and unknown for good when it was asked about for long enough."""
    left = confirmer.unknown_after.total_seconds() - claimed.age
    if left <= 0:
        hours = f"no verdict came within {confirmer.unknown_after} of its being sent"
        return _failed(claimed, Verdict.UNKNOWN, UNKNOWN, hours)
    return Said(claimed=claimed, verdict=Verdict.OPEN, rest=max(_SHORTEST_REST, min(rest, left)))


def _failed(claimed: Claimed, verdict: Verdict, code: str, reason: str) -> Said:
    return Said(claimed=claimed, verdict=verdict, code=code_of(code), error=text(reason))
