"""What a store is told besides its Redis: every knob, its unit, its default, its consequence."""

from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import TypedDict

from idempotency.keys import Keys

_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a store names, for how long it remembers, and for how long it tries.

    Attributes:
        prefix: What every key begins with, so that applications can share a Redis. Default `pf`.
        ttl: How long a mark lives. A delivery that comes later is taken for a new event, so it is longer than the
            broker keeps what it may deliver again. Default 720 hours.
        lease: How long a claim or a lock is believed in without a renewal: as long as an event waits for the next
            consumer when its own has died. Default 60 seconds.
        retry_base: The pause before the second try of a request that Redis did not answer or could not take; it
            doubles, and half of it is left to chance. Default 50 milliseconds.
        retry_max: The longest such pause. Default 1 second.
        retry_for: How long a request is tried in all, and at least twice; then StoreUnavailableError is raised. A
            try that hangs is ended by the timeouts of the client, not by this. Default 5 seconds.
    """

    prefix: str = "pf"
    ttl: timedelta = timedelta(hours=720)
    lease: timedelta = timedelta(seconds=60)
    retry_base: timedelta = timedelta(milliseconds=50)
    retry_max: timedelta = timedelta(seconds=1)
    retry_for: timedelta = timedelta(seconds=5)

    def __post_init__(self) -> None:
        Keys(self.prefix)
        for each in fields(self):
            if each.name != "prefix":
                milliseconds(each.name, getattr(self, each.name))


class Overrides(TypedDict, total=False):
    """The settings again, as keywords of a manager."""

    prefix: str
    ttl: timedelta
    lease: timedelta
    retry_base: timedelta
    retry_max: timedelta
    retry_for: timedelta


def milliseconds(name: str, life: timedelta, *, least: timedelta = _MILLISECOND) -> int:
    """A length of time as Redis takes it."""
    if not isinstance(life, timedelta):
        raise TypeError(f"{name} is {life!r}; write it like timedelta(seconds=60)")
    if life < least:
        raise ValueError(f"{name} is {life!r}, and has to be {least // _MILLISECOND} ms at least")
    return life // _MILLISECOND


DEFAULTS = Settings()


def overridden(settings: Settings, overrides: Overrides) -> Settings:
    """The settings with what the keywords of a manager change."""
    return replace(settings, **overrides) if overrides else settings
