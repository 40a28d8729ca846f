"""Who asks a provider what became of the sends that it gave a ticket for."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from consumers.errors import ConfigurationError
from consumers.handlers import EACH, Function, shape
from consumers.outcome import Sent
from consumers.texts import is_kept
from relay.kernel import code_duration as duration
from relay.kernel.code_duration import Duration

MOST_TICKETS: Final = 10_000
_LONGEST_TICKET: Final = 4_000
_SHORTEST_EVERY: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """A send that waits to be confirmed."""

    ticket: str
    """What the handler put into `Sent`."""
    event_id: UUID
    event_type: str
    version: int
    recipient: str
    """Of an event that was fanned out; empty for the event itself."""
    attempt: int
    """At which it was sent, from 1."""
    sent_at: datetime
    delivery_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidRecipient:
    """A provider's word that a recipient is none: nothing should be sent to it any more."""

    event_id: UUID
    event_type: str
    recipient: str
    ticket: str
    code: str
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class OnInvalid:
    """What deactivates recipients."""

    function: Callable[..., Awaitable[None]]
    with_context: bool

    def call(self, invalid: InvalidRecipient, context: Any) -> Awaitable[None]:
        """Call the function with as many arguments as it takes."""
        return self.function(invalid, context) if self.with_context else self.function(invalid)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Confirmer:
    """One function and how it is asked."""

    function: Function
    event_type: str
    every: timedelta
    batch: int
    unknown_after: timedelta
    timeout: timedelta
    in_thread: bool
    with_context: bool

    @property
    def name(self) -> str:
        """How logs call it."""
        return getattr(self.function, "__qualname__", None) or type(self.function).__qualname__

    def call(self, tickets: list[Ticket], context: Any) -> Any:
        """Call the function with as many arguments as it takes."""
        return self.function(tickets, context) if self.with_context else self.function(tickets)


def confirmer(  # noqa: PLR0913 -- each by its name
    function: Function,
    event_type: object,
    *,
    every: Duration,
    batch: object,
    unknown_after: Duration,
    timeout: Duration,
) -> Confirmer:
    """A confirmer, if all of that can be meant; or else ConfigurationError."""
    if not isinstance(event_type, str) or not event_type or event_type.endswith(("*", EACH)):
        raise ConfigurationError(
            f"@consumer.confirm has {event_type!r:.120}; name one event type, which is for its recipients as well: "
            "what waits is looked up by it"
        )
    if isinstance(batch, bool) or not isinstance(batch, int) or not 1 <= batch <= MOST_TICKETS:
        raise ConfigurationError(
            f"@consumer.confirm({event_type!r}) has batch={batch!r}; write how many tickets it is asked about at once, "
            f"1 to {MOST_TICKETS}"
        )
    in_thread, with_context = shape(function, "tickets")
    times = {
        name: _positive(event_type, name, value)
        for name, value in (("every", every), ("unknown_after", unknown_after), ("timeout", timeout))
    }
    if times["every"] < _SHORTEST_EVERY:
        raise ConfigurationError(f"@consumer.confirm({event_type!r}) has every={every!r}; write 1s or more")
    if times["unknown_after"] <= times["every"]:
        raise ConfigurationError(
            f"@consumer.confirm({event_type!r}) has unknown_after={unknown_after!r}, no longer than every={every!r}: "
            "each send would be unknown before it is asked about; raise it"
        )
    return Confirmer(
        function=function, event_type=event_type, batch=batch, in_thread=in_thread, with_context=with_context, **times
    )


@dataclass(slots=True)
class Confirmers:
    """Those of a consumer, one for an event type."""

    on_invalid: OnInvalid | None = None
    _of: dict[str, Confirmer] = field(default_factory=dict)

    def all(self) -> list[Confirmer]:
        """Every one."""
        return list(self._of.values())

    def of(self, event_type: str) -> Confirmer | None:
        """Who asks about sends of this type."""
        return self._of.get(event_type)

    def first_asked(self, event_type: str) -> float:
        """How many seconds after it was sent a send of this type may first be asked about."""
        found = self.of(event_type)
        return 0.0 if found is None else found.every.total_seconds()

    def add(self, confirmer: Confirmer) -> None:
        """Register one. Raises ConfigurationError where its type has one already."""
        if (other := self._of.get(confirmer.event_type)) is not None:
            raise ConfigurationError(f"{confirmer.event_type!r} is confirmed already, by {other.name}")
        self._of[confirmer.event_type] = confirmer

    def fault(self, sent: Sent, event_type: str) -> str | None:
        """Why nobody can ever ask what became of this send."""
        if event_type not in self._of:
            return f"nobody asks what became of it; register @consumer.confirm({event_type!r})"
        ticket = sent.ticket
        if not ticket.strip():
            return "its ticket is empty; answer with Sent(ticket) only where the provider gave one"
        if not is_kept(ticket, _LONGEST_TICKET):
            return f"its ticket cannot be kept: it takes up to {_LONGEST_TICKET} characters of UTF-8, without NUL"
        return None


def _positive(event_type: str, name: str, value: Duration) -> timedelta:
    try:
        read = duration.read(value)
    except ValueError as error:
        raise ConfigurationError(f"@consumer.confirm({event_type!r}): {name} {error}") from None
    if not read:
        raise ConfigurationError(f"@consumer.confirm({event_type!r}) has {name}=0; write a duration such as 30s")
    return read
