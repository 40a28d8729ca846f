"""One process's way to an inbox that is real: its connections, which are cut when the process is killed."""

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from consumers.app import Consumer
from consumers.errors import UsageError
from consumers.testing.broker import Fuse, MemoryDeadLetters, MemorySource
from consumers.testing.clock import FakeClock
from relay.kernel.observe import Observe

if TYPE_CHECKING:
    from consumers.inbox.building import Built


@dataclass(frozen=True, slots=True)
class Place:
    """A migrated inbox."""

    url: str
    schema: str = "public"
    lease_seconds: float = 60.0
    connections: int = 4
    retention: timedelta | None = None
    """How long what has ended is kept; None is for good."""
    retention_to: Literal["nowhere", "archive"] = "nowhere"
    """Where it goes then."""
    shard: int = 0
    shards: int = 1


class Database:
    """The inbox as one process reaches it; its time goes on with the test's clock."""

    def __init__(self, place: Place | None, fuse: Fuse) -> None:
        if place is None:
            raise UsageError(
                "the consumer keeps its deliveries in Postgres; give the test one that was migrated for it: "
                "in_memory(consumer, database=url)"
            )
        self._place = place
        self._fuse = fuse
        self._built: Built | None = None

    def build(
        self,
        consumer: Consumer,
        clock: FakeClock,
        upstream: MemorySource,
        dead_letters: MemoryDeadLetters,
        observe: Observe,
    ) -> "Built":
        """The parts of the consumer's inbox."""
        from consumers.inbox import building  # noqa: PLC0415 -- loads libpq, which tests of other modes do without

        place = self._place
        self._built = building.build(
            building.Place(
                url=place.url,
                schema=place.schema,
                lease_seconds=place.lease_seconds,
                heartbeat_seconds=place.lease_seconds / 4,
                poll_seconds=0.5,
                connections=place.connections,
                shard=place.shard,
                shards=place.shards,
                retention=place.retention,
                retention_to=place.retention_to,
            ),
            consumer=consumer.name,
            handlers=consumer.handlers,
            upstream=upstream,
            dead_letters=dead_letters,
            shard_key=consumer.shard_by,
            confirmers=consumer.confirmers,
            observe=observe,
            clock=clock,
            jitter=lambda _: 0.0,
            skew=clock.monotonic,
        )
        return self._built

    def cut(self) -> None:
        """End all connections without a word, as the end of a process does."""
        if self._built is not None:
            self._built.cut()
