"""A consumer as its author writes it: which events it acts on, by which functions, and how."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from pydantic import TypeAdapter

from consumers.classification import Classification
from consumers.confirmers import Confirmer, Confirmers, OnInvalid, confirmer
from consumers.dedup.protocol import Mode
from consumers.errors import ConfigurationError
from consumers.events import ConsumerStarted
from consumers.handlers import (
    DEFAULTS,
    INBOX_DEFAULTS,
    Defaults,
    Function,
    Handler,
    Handlers,
    OnRise,
    Upcaster,
    checked_pattern,
    registered_revision,
    registered_version,
    shape,
)
from consumers.missing import TellMissing, checked_teller
from consumers.retry import RetryPolicy
from consumers.sharding import ShardKey, of_aggregate
from consumers.sources.source import Origin
from relay.kernel import code_duration as duration
from relay.kernel.observe import Observe, to_all

if TYPE_CHECKING:
    from consumers.settings import Settings

Lifespan = Callable[[], AbstractAsyncContextManager[Any]]
_Handler = TypeVar("_Handler", bound=Function)
_Tell = TypeVar("_Tell", bound=TellMissing)
_UNSET: Final = object()
_NAMELESS = set("{}*\0\n\r\t ")
_LONGEST_NAME = 100
_LARGEST_BATCH: Final = 1_000
_LONGEST_BATCH_WAIT: Final = 10.0


class Consumer:
    """Acts on the events of one subscription, each once in effect as far as `dedup` can promise.

    Example:
        billing = Consumer("billing", subscription="billing-orders")

        @billing.on("order.paid", model=OrderPaid)
        async def book(event: Received[OrderPaid], ctx: Context) -> None: ...

    Args:
        name: Under which events are remembered as processed. Keep it for the consumer's life: under another name all
            events are new.
        subscription: Where deliveries come from. Default: the name.
        source: `pubsub`, a subscription, or `outbox`: straight from the outbox of the database that has the inbox,
            without a broker and a relay between. That needs dedup="inbox".
        dedup: `claim` (Redis, in two phases), `mark` (Redis, before the effect, at most once), `inbox` (Postgres: kept
            there before it is acted on, and the only one with effects exactly once) or `none`.
        concurrency: Handlers that run at once, in this process; and of each handler, unless it says otherwise.
            Default: 50; with an inbox INBOX_CONCURRENCY, which is 10.
        timeout: How long an asynchronous handler may take before it is cancelled and its event comes again. Default:
            45 seconds, with an inbox three quarters of INBOX_LEASE_MS; None is without an end. A plain function in a
            thread cannot be cancelled, and is only told of.
        retry: When an event comes again after a failure, and when no more. Default: after 5 s doubling to 120 s, ten
            attempts; with an inbox INBOX_RETRY_… and INBOX_MAX_ATTEMPTS, which is 3.
        classification: Which errors may pass. Default: all, but what says otherwise of itself.
        dead_letter_topic: Where events go that failed for good. Default: the subscription's name with
            `-dead-letters` behind it.
        lifespan: An asynchronous context manager around the consumer's work, called without arguments; what it yields
            is `ctx.state`.
        shard_by: With an inbox and INBOX_SHARD_COUNT, what stays together on one process: a function of the event that
            gives a text. Default: its aggregate.
    """

    def __init__(  # noqa: PLR0913 -- each by its name, each with a default
        self,
        name: str,
        *,
        subscription: str | None = None,
        source: Literal["pubsub", "outbox"] = "pubsub",
        dedup: Literal["mark", "claim", "inbox", "none"] = "claim",
        concurrency: int | None = None,
        timeout: duration.Duration | object | None = _UNSET,
        retry: RetryPolicy | None = None,
        classification: Classification | None = None,
        dead_letter_topic: str | None = None,
        lifespan: Lifespan | None = None,
        shard_by: ShardKey = of_aggregate,
    ) -> None:
        self.name = _checked_name(name)
        self.dedup = _mode(dedup)
        self.source = _checked_source(source)
        if self.source is Origin.OUTBOX:
            _check_without_broker(self.dedup, subscription, dead_letter_topic, shard_by)
            self.subscription, self.dead_letter_topic = self.source.value, ""
        else:
            self.subscription = subscription or name
            self.dead_letter_topic = dead_letter_topic or f"{self.subscription.rpartition('/')[2]}-dead-letters"
        standard = INBOX_DEFAULTS if self.dedup is Mode.INBOX else DEFAULTS
        self._left_open = frozenset(
            name
            for name, is_open in (
                ("concurrency", concurrency is None),
                ("timeout", timeout is _UNSET),
                ("retry", retry is None),
            )
            if is_open
        )
        self.concurrency = standard.concurrency if concurrency is None else _checked_concurrency(concurrency)
        self.lifespan = lifespan
        self.shard_by = shard_by
        self.handlers = Handlers()
        self.tell_missing: TellMissing | None = None
        self.confirmers = Confirmers()
        self._timeout = standard.timeout if timeout is _UNSET else _checked_timeout(timeout)
        self._retry = retry or standard.retry
        self._classification = classification or Classification()

    def __repr__(self) -> str:
        return f"Consumer({self.name!r}, subscription={self.subscription!r}, dedup={self.dedup.value!r})"

    def on(  # noqa: PLR0913 -- each by its name, each with a default
        self,
        event_type: str,
        *,
        version: int | Literal["any"] | None = None,
        model: Any = None,
        concurrency: int | None = None,
        timeout: duration.Duration | object | None = _UNSET,
        retry: RetryPolicy | None = None,
        classification: Classification | None = None,
        revision: int | None = None,
        on_rise: OnRise = "nothing",
        batch: int | None = None,
        batch_wait: duration.Duration = "10ms",
    ) -> Callable[[_Handler], _Handler]:
        """Register the handler of an event type, or of all that begin alike: `order.*`.

        It is called with the event, and with a Context where it takes a second argument. `async def` runs in the event
        loop, a plain function in a thread. What it returns: nothing, one of the outcomes, or a result.

        Args:
            event_type: The type, or its beginning and a `*`. An exact type goes over every beginning, a longer one
                over a shorter one.
            version: The version of the event type that it takes: 1 unless it says otherwise, or "any". Older ones
                come through upcasters, newer ones are held until a handler is deployed. Patterns take any version.
            model: What `data` is validated as: anything that pydantic can, such as a model. Default: as JSON has it.
            concurrency: How many of it run at once in this process. Default: the consumer's; 1 with a batch.
            timeout: As the consumer's, which is the default.
            retry: As the consumer's, which is the default.
            classification: As the consumer's, which is the default.
            revision: With an inbox, which handler of these events it is, from 1, whatever their version. Write a
                higher number than before, and what the ones before have ended becomes what on_rise says.
            on_rise: "nothing"; "failed" has events handled again that have failed; "all" also those that were done,
                whose effects it then repeats.
            batch: For up to how many events it is called at once: with a list of events, and a list of contexts. It
                answers with a list, for each in their order what it would answer for one; with one outcome, or nothing,
                for all. What it raises counts for each. Each event keeps its own attempts and end.
            batch_wait: For how long no further event comes before it is called with fewer.
        """
        options = {
            "batched": _checked_batch(event_type, batch, batch_wait),
            "model": model,
            "concurrency": concurrency,
            "timeout": timeout,
            "retry": retry,
            "classification": classification,
        }
        return self._registering(self.handlers.add, event_type, version, (revision, on_rise), options)

    def each(  # noqa: PLR0913 -- each by its name, each with a default
        self,
        event_type: str,
        *,
        version: int | Literal["any"] | None = None,
        model: Any = None,
        concurrency: int | None = None,
        timeout: duration.Duration | object | None = _UNSET,
        retry: RetryPolicy | None = None,
        classification: Classification | None = None,
        revision: int | None = None,
        on_rise: OnRise = "nothing",
        batch: int | None = None,
        batch_wait: duration.Duration = "10ms",
    ) -> Callable[[_Handler], _Handler]:
        """Register the handler of an event for each recipient that `ctx.fan_out` gave it: `event.recipient` names it.

        Each is a delivery of its own, with its attempts and its end. Takes what `on` takes. Needs an inbox.
        """
        self._need_inbox(f"@consumer.each({event_type!r})")
        options = {
            "batched": _checked_batch(event_type, batch, batch_wait),
            "model": model,
            "concurrency": concurrency,
            "timeout": timeout,
            "retry": retry,
            "classification": classification,
        }
        return self._registering(self.handlers.add_each, event_type, version, (revision, on_rise), options)

    def concurrency_under(self, defaults: Defaults) -> int:
        """How many handlers run at once, in a process that has these defaults."""
        return defaults.concurrency if "concurrency" in self._left_open else self.concurrency

    def fallback(self, function: _Handler) -> _Handler:
        """Register the handler of all events that no other handler is for."""
        self.handlers.add_fallback(self._handler(function, "*", None))
        return function

    def upcast(self, event_type: str, *, from_version: int) -> Callable[[Upcaster], Upcaster]:
        """Register what makes data of version `from_version` + 1 out of data of `from_version`."""

        def register(function: Upcaster) -> Upcaster:
            self.handlers.add_upcaster(checked_pattern(event_type), from_version, function)
            return function

        return register

    def reconcile(self, function: _Tell) -> _Tell:
        """Register what tells the events that there should be, for `consumers reconcile`.

        An asynchronous function of (position, page). `position` is None at first, then what it answered last; `page` is
        how many events it should answer with, or fewer. It answers with those events, each a `Missing`, and with the
        next position, which JSON can write, or None behind the last. It is called again with a position after a crash.
        """
        if self.dedup is not Mode.INBOX:
            raise ConfigurationError(
                f"consumer {self.name!r} has dedup={self.dedup.value!r}, and nothing to reconcile; "
                "it needs dedup='inbox'"
            )
        if self.tell_missing is not None:
            raise ConfigurationError(f"consumer {self.name!r} has a function for reconcile already")
        self.tell_missing = checked_teller(self.name, function)
        return function

    def confirm(
        self,
        event_type: str,
        *,
        every: duration.Duration = "30s",
        batch: int = 1_000,
        unknown_after: duration.Duration = "24h",
        timeout: duration.Duration = "45s",
    ) -> Callable[[_Handler], _Handler]:
        """Register who asks what became of events of this type for which a handler answered `Sent(ticket)`.

        The function is called with a list of `Ticket`, and with a ConfirmContext where it takes a second argument. It
        answers for each, in their order: Done or None, Retry (sent again, as the handler's retry policy has it), Dead,
        Invalid (see `on_invalid`), or Defer, which is "not yet". One outcome in place of a list is for all.

        Args:
            event_type: The type, exactly.
            every: How often it is asked: a send first after one to two of these.
            batch: About how many sends at once. Default: 1,000.
            unknown_after: For how long after it was sent a send is asked about. Then it has failed, as `unknown`, and
                is not sent again.
            timeout: How long an asynchronous function may take before it is cancelled and asked again later.
        """

        def register(function: _Handler) -> _Handler:
            self._need_inbox(f"@consumer.confirm({event_type!r})")
            found: Confirmer = confirmer(
                function, event_type, every=every, batch=batch, unknown_after=unknown_after, timeout=timeout
            )
            self.confirmers.add(found)
            return function

        return register

    def on_invalid(self, function: _Handler) -> _Handler:
        """Register what deactivates a recipient that a confirming function called `Invalid`.

        It is called with an InvalidRecipient, and with a ConfirmContext where it takes a second argument, before the
        delivery ends, at least once; where it raises, later again.
        """
        self._need_inbox("@consumer.on_invalid")
        in_thread, with_context = shape(function, "invalid")
        if in_thread:
            raise ConfigurationError("what @consumer.on_invalid registers has to be async def")
        if self.confirmers.on_invalid is not None:
            raise ConfigurationError("there is an @consumer.on_invalid already")
        self.confirmers.on_invalid = OnInvalid(function, with_context)
        return function

    async def run(
        self,
        settings: "Settings | None" = None,
        *,
        stopping: asyncio.Event | None = None,
        observe: Observe | None = None,
    ) -> None:
        """Receive and act until `stopping` is set or the task is cancelled. Settings come from the environment.

        `observe` gets every event of `consumers.events`, beside the log: `consumers.metrics.Metrics()`, for example.
        """
        from consumers.wiring import run_one  # noqa: PLC0415 -- loads gRPC and Redis, which registering does not need

        await run_one(self, settings, stopping or asyncio.Event(), observe)

    @asynccontextmanager
    async def running(
        self, settings: "Settings | None" = None, *, observe: Observe | None = None
    ) -> AsyncIterator[None]:
        """Receive and act while the block runs: for the lifespan of a web service.

        The block begins when the consumer receives; what keeps it from that is raised before. What fails later is in
        the log, and is raised at the end of the block.
        """
        stopping, receiving = asyncio.Event(), asyncio.Event()

        def listen(event: object) -> None:
            if isinstance(event, ConsumerStarted):
                receiving.set()

        everything = to_all(listen, observe) if observe else listen
        task = asyncio.create_task(self.run(settings, stopping=stopping, observe=everything))
        begun = asyncio.create_task(receiving.wait())
        try:
            await asyncio.wait([task, begun], return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                yield
        finally:
            begun.cancel()
            stopping.set()
            await task

    def _revised(self, pattern: str, revision: int | None, on_rise: OnRise) -> tuple[int, OnRise]:
        if self.dedup is not Mode.INBOX and (revision is not None or on_rise != "nothing"):
            raise ConfigurationError(
                f"{pattern!r} has a revision, and consumer {self.name!r} dedup={self.dedup.value!r}, which does not "
                "keep events to handle again; leave revision and on_rise out, or choose dedup='inbox'"
            )
        return registered_revision(pattern, revision, on_rise)

    def _registering(
        self,
        add: Callable[[Handler], None],
        event_type: str,
        version: object,
        revised: tuple[int | None, OnRise],
        options: dict[str, Any],
    ) -> Callable[[_Handler], _Handler]:
        pattern = checked_pattern(event_type)
        number = registered_version(pattern, version)
        options = {**options, "revised": self._revised(pattern, *revised)}

        def register(function: _Handler) -> _Handler:
            add(self._handler(function, pattern, number, **options))
            return function

        return register

    def _concurrency_of(self, concurrency: int | None, batch: int) -> int:
        if concurrency is not None:
            return _checked_concurrency(concurrency)
        return 1 if batch else self.concurrency

    def _need_inbox(self, what: str) -> None:
        if self.dedup is not Mode.INBOX:
            raise ConfigurationError(
                f"{what} needs deliveries that are kept in Postgres, and consumer {self.name!r} has "
                f"dedup={self.dedup.value!r}; choose dedup='inbox'"
            )

    def _handler(  # noqa: PLR0913 -- what `on` takes
        self,
        function: Function,
        pattern: str,
        version: int | None,
        *,
        model: Any = None,
        concurrency: int | None = None,
        timeout: object = _UNSET,
        retry: RetryPolicy | None = None,
        classification: Classification | None = None,
        revised: tuple[int, OnRise] = (1, "nothing"),
        batched: tuple[int, float] = (0, 0.0),
    ) -> Handler:
        batch, batch_wait = batched
        in_thread, with_context = shape(function, "events" if batch else "event")
        said = {
            name
            for name, is_said in (
                ("concurrency", concurrency or batch),
                ("timeout", timeout is not _UNSET),
                ("retry", retry),
            )
            if is_said
        }
        return Handler(
            function=function,
            pattern=pattern,
            version=version,
            data=None if model is None else TypeAdapter(model),
            concurrency=self._concurrency_of(concurrency, batch),
            batch=batch,
            batch_wait=batch_wait,
            timeout=self._timeout if timeout is _UNSET else _checked_timeout(timeout),
            retry=retry or self._retry,
            classification=classification or self._classification,
            in_thread=in_thread,
            with_context=with_context,
            revision=revised[0],
            on_rise=revised[1],
            left_open=self._left_open - said,
        )


def _checked_name(name: object) -> str:
    if not isinstance(name, str) or not 1 <= len(name) <= _LONGEST_NAME or _NAMELESS & set(name):
        raise ConfigurationError(
            f"the consumer's name is {name!r:.120}; write 1 to {_LONGEST_NAME} characters without braces, * and blanks"
        )
    return name


def _checked_source(source: str) -> Origin:
    try:
        return Origin(source)
    except ValueError:
        known = ", ".join(origin.value for origin in Origin)
        raise ConfigurationError(f"source is {source!r}; choose one of {known}") from None


def _check_without_broker(
    dedup: Mode, subscription: str | None, dead_letter_topic: str | None, shard_by: ShardKey
) -> None:
    """Raise ConfigurationError with a line for each thing that has no meaning, or no effect, without a broker."""
    faults = []
    if dedup is not Mode.INBOX:
        faults.append(f"source='outbox' has dedup={dedup.value!r}; its events are kept in Postgres: dedup='inbox'")
    faults += [
        f"source='outbox' has {name}={given!r:.100}, and no broker that has one; leave it out"
        for name, given in (("subscription", subscription), ("dead_letter_topic", dead_letter_topic))
        if given is not None
    ]
    if shard_by is not of_aggregate:
        faults.append(
            "source='outbox' has a shard_by of its own, and whoever moves an event does so for all consumers and reads "
            "none of it; leave it out: parts are made by the aggregate"
        )
    if faults:
        raise ConfigurationError("\n".join(faults))


def _mode(dedup: str) -> Mode:
    try:
        return Mode(dedup)
    except ValueError:
        known = ", ".join(mode.value for mode in Mode)
        raise ConfigurationError(f"dedup is {dedup!r}; choose one of {known}") from None


def _checked_concurrency(concurrency: object) -> int:
    if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1:
        raise ConfigurationError(f"concurrency is {concurrency!r}; write how many handlers run at once, from 1 on")
    return concurrency


def _checked_batch(event_type: str, batch: object, wait: duration.Duration) -> tuple[int, float]:
    """How many events a batch has, 0 without one, and for how many seconds it waits for more."""
    if batch is None:
        return 0, 0.0
    if isinstance(batch, bool) or not isinstance(batch, int) or not 1 <= batch <= _LARGEST_BATCH:
        raise ConfigurationError(
            f"{event_type!r} has batch={batch!r}; write for how many events the handler is called at once, 1 to "
            f"{_LARGEST_BATCH}"
        )
    try:
        seconds = duration.read(wait).total_seconds()
    except ValueError as error:
        raise ConfigurationError(f"{event_type!r}: batch_wait {error}") from None
    if seconds > _LONGEST_BATCH_WAIT:
        raise ConfigurationError(
            f"{event_type!r} has batch_wait={wait!r}: events wait for so long with their leases; write up to "
            f"{_LONGEST_BATCH_WAIT:g} s"
        )
    return batch, seconds


def _checked_timeout(timeout: object) -> timedelta | None:
    if timeout is None:
        return None
    try:
        read = duration.read(timeout)  # type: ignore[arg-type]
    except ValueError as error:
        raise ConfigurationError(f"timeout {error}") from None
    if not read:
        raise ConfigurationError("timeout is 0; write how long a handler may take, or None for no end")
    return read
