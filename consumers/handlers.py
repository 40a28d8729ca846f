"""Which handler an event is for, and what it has to become before."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import wraps
from typing import Any, Final, Literal, get_args

from pydantic import TypeAdapter

from consumers.answers import for_each
from consumers.classification import Classification
from consumers.errors import ConfigurationError
from consumers.retry import Exponential, RetryPolicy
from relay.patterns import pattern_fault

Function = Callable[..., Any]
Upcaster = Callable[[Any], Any]
ANY: Final = "any"
OnRise = Literal["nothing", "failed", "all"]
# What the column of a revision holds.
_HIGHEST_REVISION: Final = 2_147_483_647
EACH: Final = "@each"
"""Behind its event type, what is handled for each recipient of an event that was fanned out."""
# What is remembered of event types; services have tens of them, only a mistake has more than this.
_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """How a handler is run that says nothing of it."""

    concurrency: int
    timeout: timedelta | None
    retry: RetryPolicy


DEFAULTS: Final = Defaults(concurrency=50, timeout=timedelta(seconds=45), retry=Exponential())
INBOX_DEFAULTS: Final = Defaults(concurrency=10, timeout=timedelta(seconds=45), retry=Exponential(max_attempts=3))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Handler:
    """One function and how it is run."""

    function: Function
    pattern: str
    version: int | None
    """None takes every version."""
    data: TypeAdapter[Any] | None
    concurrency: int
    timeout: timedelta | None
    retry: RetryPolicy
    classification: Classification
    in_thread: bool
    with_context: bool
    batch: int = 0
    """For how many events it is called at once; 0 is for one, by itself."""
    batch_wait: float = 0.0
    """For how many seconds nobody has to join before it is called with fewer."""
    revision: int = 1
    """Which the function is of those that there have been for these events; of an inbox alone."""
    on_rise: OnRise = "nothing"
    """What becomes of the events that an older revision has ended."""
    left_open: frozenset[str] = frozenset()
    """Of `Defaults`, what its author has left to the process that runs it."""

    @property
    def name(self) -> str:
        """How logs call it."""
        return getattr(self.function, "__qualname__", None) or type(self.function).__qualname__

    def under(self, defaults: Defaults) -> "Handler":
        """The same with what the process has for all that was left open."""
        found: Handler = replace(self, **{name: getattr(defaults, name) for name in self.left_open})
        return found

    @property
    def most(self) -> int:
        """How many deliveries may be in its calls at once."""
        return self.concurrency * max(1, self.batch)

    def call_batch(self, events: list[Any], contexts: list[Any]) -> Any:
        """Call the function of a batch handler, with as many arguments as it takes."""
        return self.function(events, contexts) if self.with_context else self.function(events)

    def by_one(self) -> "Handler":
        """The same for one event at a time."""
        if not self.batch:
            return self
        return replace(self, function=_by_one(self), with_context=True, batch=0)

    def call(self, event: Any, context: Any) -> Any:
        """Call the function with as many arguments as it takes; an asynchronous one answers with an awaitable."""
        return self.function(event, context) if self.with_context else self.function(event)


@dataclass(frozen=True, slots=True)
class Meant:
    """The event is for this handler, after these have brought its data to the handler's version."""

    handler: Handler
    upcasters: tuple[Upcaster, ...] = ()


@dataclass(frozen=True, slots=True)
class TooNew:
    """The event has a version that no handler knows yet: producers may be deployed first."""

    handler: Handler
    newest: int


@dataclass(frozen=True, slots=True)
class TooOld:
    """The event has a version from which nothing leads to one that is handled."""

    handler: Handler
    missing: int
    """The version that has no upcaster."""


@dataclass(frozen=True, slots=True)
class Unhandled:
    """No handler is for events of this type."""


Resolution = Meant | TooNew | TooOld | Unhandled


@dataclass(slots=True)
class Handlers:
    """All handlers of a consumer; the most specific one is the event's."""

    _exact: dict[str, dict[int | None, Handler]] = field(default_factory=dict)
    _beginnings: dict[str, Handler] = field(default_factory=dict)
    _upcasters: dict[tuple[str, int], Upcaster] = field(default_factory=dict)
    _fallback: Handler | None = None
    _known: dict[tuple[str, int], Resolution] = field(default_factory=dict)
    each: "Handlers | None" = None
    """Those of fanned-out deliveries, if there are any."""

    def all(self) -> list[Handler]:
        """Every handler, each once."""
        return [*self.own(), *(self.each.all() if self.each else [])]

    def own(self) -> list[Handler]:
        """Those of events themselves."""
        exact = [handler for versions in self._exact.values() for handler in versions.values()]
        return [*exact, *self._beginnings.values(), *([self._fallback] if self._fallback else [])]

    def wrapped(self, wrap: Callable[[Handler], Function]) -> "Handlers":
        """The same handlers for the same events, each with a function of (event, context) around its own.

        Those of batches have batches of one.
        """
        return self._changed(
            lambda handler: replace(
                handler.by_one(), function=wraps(handler.function)(wrap(handler.by_one())), with_context=True
            )
        )

    def under(self, defaults: Defaults) -> "Handlers":
        """The same handlers for the same events, with what the process has for all that was left open."""
        return self._changed(lambda handler: handler.under(defaults))

    def _changed(self, changed: Callable[[Handler], Handler]) -> "Handlers":
        return Handlers(
            {each: {version: changed(of) for version, of in found.items()} for each, found in self._exact.items()},
            {each: changed(handler) for each, handler in self._beginnings.items()},
            dict(self._upcasters),
            self._fallback and changed(self._fallback),
            each=self.each and self.each._changed(changed),  # noqa: SLF001 -- of the same kind
        )

    def patterns(self) -> tuple[str, ...]:
        """What is handled, for people."""
        return tuple(dict.fromkeys(handler.pattern for handler in self.own()))

    def add(self, handler: Handler) -> None:
        """Register a handler. Raises ConfigurationError where there is one for the same events already."""
        pattern, version = handler.pattern, handler.version
        if pattern.endswith("*"):
            if pattern in self._beginnings:
                raise ConfigurationError(f"{pattern!r} has a handler already: {self._beginnings[pattern].name}")
            self._beginnings[pattern] = handler
        else:
            versions = self._exact.setdefault(pattern, {})
            for other in versions:
                if other == version or other is None or version is None:
                    raise ConfigurationError(
                        f"{pattern!r} in version {version or ANY} has a handler already: {versions[other].name}"
                    )
            versions[version] = handler
        self._known.clear()

    def add_each(self, handler: Handler) -> None:
        """Register a handler of fanned-out deliveries. Raises ConfigurationError as `add` does."""
        if self.each is None:
            self.each = Handlers(_upcasters=self._upcasters)
        self.each.add(handler)

    def add_fallback(self, handler: Handler) -> None:
        """Register the handler of all events that have no other. Raises ConfigurationError where there is one."""
        if self._fallback:
            raise ConfigurationError(f"there is a fallback already: {self._fallback.name}")
        self._fallback = handler
        self._known.clear()

    def add_upcaster(self, event_type: str, from_version: int, upcaster: Upcaster) -> None:
        """Register what makes data of the next version. Raises ConfigurationError where there is one."""
        if from_version < 1:
            raise ConfigurationError(f"the upcaster of {event_type!r} begins at version {from_version}; the first is 1")
        if (event_type, from_version) in self._upcasters:
            raise ConfigurationError(f"{event_type!r} has an upcaster from version {from_version} already")
        if inspect.iscoroutinefunction(upcaster):
            raise ConfigurationError(f"the upcaster of {event_type!r} is asynchronous; it has to be a plain function")
        self._upcasters[event_type, from_version] = upcaster
        self._known.clear()
        if self.each is not None:
            self.each._known.clear()  # noqa: SLF001 -- of the same kind

    def check(self) -> None:
        """Raise ConfigurationError where something was registered that can have no effect."""
        if not self.own():
            raise ConfigurationError("there is no handler; register one with @consumer.on(…) or @consumer.fallback")
        for handler in self.each.all() if self.each else []:
            if not handler.pattern.endswith("*") and not self.of_type(handler.pattern):
                raise ConfigurationError(
                    f"@consumer.each({handler.pattern!r}) has no event to be fanned out: register "
                    f"@consumer.on({handler.pattern!r}), and call ctx.fan_out in it"
                )
        for event_type, version in self._upcasters:
            versions = {*self._exact.get(event_type, {}), *(self.each._exact.get(event_type, {}) if self.each else ())}  # noqa: SLF001 -- of the same kind
            newest = max((known for known in versions if known), default=0)
            if version >= newest:
                raise ConfigurationError(
                    f"the upcaster of {event_type!r} from version {version} leads to no handler; "
                    f"register one with @consumer.on({event_type!r}, version={version + 1})"
                )

    def of_type(self, event_type: str) -> list[Handler]:
        """The handlers of a type, whichever version they are for; of one with EACH, those of its recipients."""
        if event_type.endswith(EACH):
            # Never the handlers of the event itself: another process may have those of its recipients.
            return self.each.of_type(plain(event_type)) if self.each else []
        if versions := self._exact.get(event_type):
            return list(versions.values())
        match self._less_specific(event_type):
            case Meant(handler):
                return [handler]
            case _:
                return []

    def resolve(self, event_type: str, version: int, recipient: str = "") -> Resolution:
        """Find what an event of this type and version is for; or its delivery to one of its recipients."""
        if recipient:
            return Unhandled() if self.each is None else self.each.resolve(event_type, version)
        found = self._known.get((event_type, version))
        if found is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            found = self._known[event_type, version] = self._resolve(event_type, version)
        return found

    def resolve_stored(self, stored_type: str, version: int) -> Resolution:
        """Find what a delivery is for that is stored under this type."""
        if not stored_type.endswith(EACH):
            return self.resolve(stored_type, version)
        return Unhandled() if self.each is None else self.each.resolve(plain(stored_type), version)

    def revision_of(self, event_type: str, version: int, recipient: str = "") -> int | None:
        """The revision of the handler that such an event is for; None where there is none."""
        match self.resolve(event_type, version, recipient):
            case Meant(handler) | TooNew(handler) | TooOld(handler):
                return handler.revision
            case Unhandled():
                return None

    def _resolve(self, event_type: str, version: int) -> Resolution:
        versions = self._exact.get(event_type)
        if not versions:
            return self._less_specific(event_type)
        if handler := versions.get(version) or versions.get(None):
            return Meant(handler)
        numbers = sorted(number for number in versions if number is not None)
        if version > numbers[-1]:
            return TooNew(versions[numbers[-1]], numbers[-1])
        target = next(number for number in numbers if number > version)
        steps = []
        for step in range(version, target):
            if (event_type, step) not in self._upcasters:
                return TooOld(versions[target], step)
            steps.append(self._upcasters[event_type, step])
        return Meant(versions[target], tuple(steps))

    def _less_specific(self, event_type: str) -> Resolution:
        matching = [pattern for pattern in self._beginnings if event_type.startswith(pattern[:-1])]
        if matching:
            return Meant(self._beginnings[max(matching, key=len)])
        return Meant(self._fallback) if self._fallback else Unhandled()


def _by_one(handler: Handler) -> Function:
    def answer_of(answers: Any) -> Any:
        (answer,) = for_each(answers, 1, handler.name, silence_is_done=True)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    if handler.in_thread:
        return lambda event, context: answer_of(handler.call_batch([event], [context]))

    async def called(event: Any, context: Any) -> Any:
        return answer_of(await handler.call_batch([event], [context]))

    return called


def plain(event_type: str) -> str:
    """The event type of what is stored under this one."""
    return event_type.removesuffix(EACH)


def registered_version(pattern: str, version: object) -> int | None:
    """The version that a registration means: 1 for an exact type unless it says otherwise, any for a pattern."""
    if pattern.endswith("*"):
        if version not in (None, ANY):
            raise ConfigurationError(
                f"{pattern!r} is a pattern, which takes every version; leave out version={version}"
            )
        return None
    if version == ANY:
        return None
    if version is None:
        return 1
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise ConfigurationError(f"{pattern!r} has version={version!r}; write a number from 1 on, or {ANY!r}")
    return version


def registered_revision(pattern: str, revision: object, on_rise: object) -> tuple[int, OnRise]:
    """The revision that a registration means, and what its rise does. Raises ConfigurationError."""
    number = 1 if revision is None else revision
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= _HIGHEST_REVISION:
        raise ConfigurationError(
            f"{pattern!r} has revision={revision!r}; write a number from 1 on, and a higher one when events that the "
            "handler has ended before are to be handled again"
        )
    match on_rise:
        case "nothing" | "failed" | "all":
            return number, on_rise
        case _:
            known = ", ".join(map(repr, get_args(OnRise)))
            raise ConfigurationError(f"{pattern!r} has on_rise={on_rise!r:.100}; choose one of {known}")


def checked_pattern(pattern: str) -> str:
    """An event type, or the beginning of one with a `*` behind it. Raises ConfigurationError."""
    if not pattern:
        raise ConfigurationError("the event type is empty; name one, or the beginning of one followed by *")
    if fault := pattern_fault(pattern, "use @consumer.fallback for what nothing else handles"):
        raise ConfigurationError(f"{pattern!r}: {fault}")
    return pattern


def shape(function: Function, what: str = "event") -> tuple[bool, bool]:
    """Whether the function of (what, context) runs in a thread, and takes the context. Raises ConfigurationError."""
    name = getattr(function, "__qualname__", repr(function))
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise ConfigurationError(f"{name} is a generator; a handler is a function that answers once")
    asynchronous = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 -- an object with an asynchronous __call__
    )
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        raise ConfigurationError(f"{name} does not tell its parameters; wrap it in a function") from None
    positional = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    needed = [each for each in positional if each.default is each.empty]
    open_end = any(each.kind is each.VAR_POSITIONAL for each in parameters)
    keywords = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY and each.default is each.empty]
    most = 2
    if keywords or len(needed) > most or not (positional or open_end):
        raise ConfigurationError(
            f"{name} has to take ({what}) or ({what}, context), and takes {inspect.signature(function)}"
        )
    return not asynchronous, open_end or len(positional) >= most
