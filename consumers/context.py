"""What a handler receives beside its event."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

import structlog
from structlog.typing import FilteringBoundLogger

from consumers.blocks import Lock, Transaction
from consumers.crossing import is_in
from consumers.dedup.protocol import Begun, Effects
from consumers.errors import UsageError
from consumers.outcome import Defer
from consumers.received import Received
from relay.kernel import code_duration as duration
from relay.kernel.code_duration import Duration

if TYPE_CHECKING:
    # What a handler works with loads the store and its Redis, which nobody needs who only registers handlers.
    from consumers.artifacts import Artifact, ArtifactStore
    from consumers.guard import Lock as RowLock
    from consumers.guard import SourceRow, Still
    from consumers.progress import Told
    from consumers.scratch import Scratch
    from consumers.stages import Stage
    from consumers.workbench import Workbench, Workshop

_LONGEST_WAIT = timedelta(seconds=30)


class Locks(Protocol):
    """Whoever has named locks: a store of `idempotency`."""

    def lock(self, name: str, *, wait: timedelta) -> AbstractAsyncContextManager[Any]:
        """Hold the lock of this name while the block runs."""
        ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all contexts of one consumer in one process share."""

    consumer: str
    loop: asyncio.AbstractEventLoop
    throttle: Callable[[str, float], None]
    """Takes an event type and seconds."""
    stopping: Callable[[], bool]
    workshop: "Workshop"
    locks: Locks | None = None
    effects: Effects | None = None
    state: Any = None
    wall: Callable[[], datetime] = lambda: datetime.now(UTC)


class Context:
    """One attempt at one event. Safe to use from the thread of a plain function."""

    __slots__ = ("_around", "_begun", "_bench", "_deferred", "attempt", "event", "watched")

    def __init__(  # noqa: PLR0913, PLR0917 -- what one attempt has
        self,
        around: Surroundings,
        event: Received[Any],
        attempt: int,
        bench: "Workbench",
        begun: Begun | None = None,
        watched: Mapping[str, Any] | None = None,
    ) -> None:
        self._around = around
        self._bench = bench
        self._begun = begun
        self._deferred: Defer | None = None
        self.event = event
        self.attempt = attempt
        """From 1; what was deferred or cut short by a shutdown does not count."""
        self.watched: Mapping[str, Any] = watched or {}
        """What the event says of its source row: the object `watched` in its data; empty without one."""

    @property
    def consumer(self) -> str:
        """The consumer's name."""
        return self._around.consumer

    @property
    def state(self) -> Any:
        """What the consumer's `lifespan` yielded; None without one."""
        return self._around.state

    @property
    def stopping(self) -> bool:
        """Whether the process is asked to stop: a long handler in a thread does well to look now and then."""
        return self._around.stopping()

    @property
    def log(self) -> FilteringBoundLogger:
        """A structlog logger that names the event in each line."""
        event = self.event
        log: FilteringBoundLogger = structlog.get_logger("consumers").bind(
            consumer=self.consumer,
            event_id=str(event.event_id),
            event_type=event.event_type,
            aggregate_type=event.aggregate_type,
            aggregate_id=event.aggregate_id,
            attempt=self.attempt,
        )
        return log

    def defer(self, until: Duration | datetime) -> Defer:
        """Not now: have the event again later: after seconds, a timedelta or "30s", or at a moment with its zone.

        No failure, and no attempt; bounded by how long the subscription keeps the message, with an inbox by 30 days
        and INBOX_MAX_DEFERS. It holds as soon as the handler returns, whether with this answer or with none; where
        the handler raises, what it raised counts.
        """
        self._deferred = Defer(self._delay(until))
        return self._deferred

    @property
    def deferred(self) -> Defer | None:
        """What `defer` was told last."""
        return self._deferred

    def throttle_all(self, pause: Duration) -> None:
        """Begin no further event of this type for a while, in this process; this delivery goes on as it is.

        Holds although the handler then raises. Other processes, and events that run already, are not reached; what
        an inbox has handed over and has not begun goes back to it.
        """
        try:
            seconds = duration.read(pause).total_seconds()
        except ValueError as error:
            raise UsageError(f"ctx.throttle_all: {error}; write seconds, a timedelta, or a text such as 30s") from None
        around = self._around
        if is_in(around.loop):
            around.throttle(self.event.event_type, seconds)  # before anything else can begin
        else:
            around.loop.call_soon_threadsafe(around.throttle, self.event.event_type, seconds)

    def transaction(self) -> Transaction:
        """A transaction in the inbox's database, for effects that are there exactly once.

        `async with ctx.transaction() as connection:` gives an asynchronous connection of psycopg; a plain function
        writes `with` and gets a synchronous one. It completes nothing by itself: call `ctx.complete(connection)` in it.
        """
        return Transaction(self._effects("ctx.transaction()"), self._begun, self._around.loop)

    def complete(self, connection: Any, result: Any = None) -> Awaitable[None]:
        """Complete this event in the connection's open transaction: committed with the effect, or not at all.

        Takes the connections and sessions that `emit` takes: psycopg, psycopg2, asyncpg, SQLAlchemy, Django. Await it
        where the connection is asynchronous. Write it behind the effects and commit soon: the lease is renewed no
        longer, and what the handler answers afterwards is ignored. Raises idempotency.LeaseLostError where
        somebody else has the event by now; let it pass, so that the transaction is rolled back.
        """
        effects = self._effects("ctx.complete(…)")
        assert self._begun is not None  # noqa: S101 -- whoever has effects has begun
        return effects.complete(self._begun, connection, result)

    def fan_out(self, recipients: Iterable[str], connection: Any = None) -> Awaitable[None]:
        """Have this event handled for each of these recipients, by the handler of `@consumer.each`.

        Each recipient has one delivery of the event, however often this is called. With a connection, as `complete`
        takes it, they are there when its transaction is committed: with `ctx.complete(connection)` behind it, and not
        without it. Without one they are there when this returns. Await it, but in a plain function.
        """
        effects = self._effects("ctx.fan_out(…)")
        assert self._begun is not None  # noqa: S101 -- whoever has effects has begun
        if self.event.recipient:
            raise UsageError(
                "ctx.fan_out(…) was called for one recipient of an event that was fanned out; call it in the handler "
                "of the event itself"
            )
        return effects.fan_out(self._begun, recipients, connection)

    def _effects(self, what: str) -> Effects:
        if self._around.effects is None:
            raise UsageError(
                f"{what} needs deliveries that are kept in Postgres, and consumer {self.consumer!r} has none: choose "
                "dedup='inbox'"
            )
        return self._around.effects

    def guard(  # noqa: PLR0913 -- each by its name
        self,
        connection: Any,
        table: str,
        key: Mapping[str, Any],
        *,
        columns: Sequence[str] = (),
        still: "Still | None" = None,
        watched: Mapping[str, Any] | None = None,
        lock: "RowLock | None" = None,
    ) -> "SourceRow":
        """Go on only while the row that the event tells of is as it was; else the event is skipped, from here.

            row = await ctx.guard(connection, "stock", {"sku": event.data["sku"]}, columns=["threshold"],
                                  still=lambda row: row["qty"] < row["threshold"])

        Reads the row again in the transaction that is open on the connection, one of those that `emit` takes; awaited
        where it is asynchronous. Skipped is what has no row any more, what is not `still` so, and what has another
        value in a column of `ctx.watched`, or of `watched` in its place. `lock` has nobody change the row until the
        transaction ends: "share", or "update" where the handler changes it itself. Answers with the row: its key,
        `columns`, and what is watched.
        """
        from consumers.guard import guard  # noqa: PLC0415 -- loads what finds the libraries of connections

        watched = self.watched if watched is None else watched
        return guard(connection, table, key, columns=columns, watched=watched, still=still, lock=lock)

    def lock(self, name: str, *, wait: Duration = _LONGEST_WAIT) -> Lock:
        """Hold a lock by this name, across processes and consumers, while the block runs.

        `async with ctx.lock(…)` in an asynchronous handler, `with ctx.lock(…)` in a plain function. It is renewed while
        the block runs, and waited for as long as `wait`; then raises idempotency.LockTimeoutError, which is transient.
        """
        if self._around.locks is None:
            raise UsageError(
                f"ctx.lock({name!r}) needs a store, and consumer {self.consumer!r} has none: dedup='none' without a "
                "store; set REDIS_URL, or choose dedup='claim' or dedup='inbox'"
            )
        try:
            waiting = duration.read(wait)
        except ValueError as error:
            raise UsageError(f"ctx.lock({name!r}): wait {error}") from None
        return Lock(self._around.locks.lock(name, wait=waiting), self._around.loop)

    def stage(self, name: str) -> "Stage":
        """What the handler does while the block runs: timed, and named where it fails.

        `async with ctx.stage("upload")` in an asynchronous handler, `with ctx.stage("upload")` in a plain function.
        """
        return self._bench.stage(name)

    def progress(self, percent: float) -> "Told":
        """Say how far the handler is, from 0 to 100. Waits for nothing, with `await` or without; may go back.

        Kept where it has moved by 1 since it was kept last, or after half a second; and 100 always.
        """
        return self._bench.progress(percent)

    @property
    def scratch(self) -> "Scratch":
        """A directory for this attempt alone, removed when it has ended: `ctx.scratch.path("frames/1.png")`."""
        return self._bench.scratch

    def artifact(self, name: str, *, store: "str | ArtifactStore") -> "Artifact":
        """A file that is made once, and stored at the end of the block, where the block did not fail.

            async with ctx.artifact("clips/42.mp4", store="s3://media") as clip:
                if clip.needed:
                    await encode(clip.path)

        `with` in a plain function. An empty file is a TransientError.
        """
        return self._bench.artifact(name, store)

    def _delay(self, until: Duration | datetime) -> timedelta:
        if isinstance(until, datetime):
            if until.tzinfo is None:
                raise UsageError(f"ctx.defer({until!r}): the moment has no time zone; write datetime.now(UTC) + …")
            delay = until - self._around.wall()
        elif isinstance(until, timedelta):
            delay = until
        else:
            try:
                delay = duration.read(max(until, 0) if isinstance(until, int | float) else until)
            except ValueError as error:
                raise UsageError(f"ctx.defer: {error}; write seconds, a timedelta, or a moment with its zone") from None
        return max(delay, timedelta(0))
