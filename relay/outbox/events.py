"""What happens while a relay sleeps."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ListenConnected:
    """The relay hears of new events from here on, and sleeps while there are none."""

    database: str  # its place and name, without the user


@dataclass(frozen=True, slots=True)
class ListenLost:
    """The relay does not hear of new events, and polls until it does again."""

    error: BaseException
    again_in_seconds: float


@dataclass(frozen=True, slots=True)
class Looked:
    """A relay that sleeps has looked: the database answers, and nothing is due."""
