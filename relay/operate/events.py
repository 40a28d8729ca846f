"""What happens to the relay as a process, beside what happens on the road and in the kernel."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Started:
    """The relay has reached its outbox for the first time, and works from here on."""

    database: str  # its place and name, without the user
    schema: str
    schema_version: int
    runners: tuple[str, ...]  # what runs, such as publish and job:ingest
    # Of a relay that publishes; None of one that does not.
    project: str | None
    broker: str | None
    topic: str | None
    batch_size: int | None


@dataclass(frozen=True, slots=True)
class SchemaDiffers:
    """The outbox's schema is the one of the release before this one or after it, and the relay works on it."""

    schema: str
    schema_version: int
    release_version: int  # that this code was written for


@dataclass(frozen=True, slots=True)
class Reconnected:
    """The relay has reached its outbox again, after it dropped its connection or lost it."""

    database: str
