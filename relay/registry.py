"""Which events a service may emit: a type's aggregate types, and a model of its data for each version. Optional.

    REGISTRY = Registry({"order.paid": Rule("order", {1: OrderPaid, 2: OrderPaidV2})})
    emit(connection, event, registry=REGISTRY)

The data is checked as its consumers will read it: as the JSON that is stored. It is checked only, and stored as given.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic_core import ErrorDetails

from relay.envelope import NAME_BYTES, VERSION_MOST
from relay.event import Event

# Of the faults of one event's data so many are told, and of a path so many steps.
_FAULTS, _STEPS = 10, 12
# Stands in a path for what may be the data's own: the key of a dictionary, the name of an unknown field.
_ANY = "*"
# A reason that a validator of the user's made up is told only where it looks like pydantic's own.
_REASON = re.compile(r"[a-z][a-z0-9_]{0,63}", re.ASCII)
# Parts of a core schema that hold values of the user's.
_VALUES = frozenset({"default", "expected", "metadata", "serialization", "config"})


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """What events of one type must be: of one of these aggregate types, with data that its version's model accepts.

    A model is a pydantic BaseModel or whatever else a TypeAdapter takes: a dataclass, `list[int]`, `Any`, a TypedDict
    (before Python 3.12 that of typing_extensions).
    How strict it is, and whether it takes unknown fields, is the model's own business.
    """

    aggregate_types: str | Collection[str]
    versions: Mapping[int, Any]

    def __post_init__(self) -> None:
        given = self.aggregate_types
        aggregate_types = frozenset([given] if isinstance(given, str) else _names(given))
        if not aggregate_types:
            raise ValueError("a Rule allows no aggregate type; name one at least")
        for name in aggregate_types:
            _require_name(name, "an aggregate type")
        object.__setattr__(self, "aggregate_types", aggregate_types)
        object.__setattr__(self, "versions", MappingProxyType(dict(_versions(self.versions))))


class Registry:
    """The events that may be emitted, as mappings of event type to Rule; a type stands in one of them alone.

    Raises TypeError or ValueError, with the event type, for what can be no rule; models are complete by then.
    """

    __slots__ = ("_kinds",)

    def __init__(self, *rules: Mapping[str, Rule]) -> None:
        kinds: dict[str, _Kind] = {}
        for event_type, rule in _each(rules):
            if event_type in kinds:
                raise ValueError(f"event type {event_type!r} has two rules; keep one")
            kinds[event_type] = _Kind(event_type, rule)
        self._kinds = MappingProxyType(kinds)

    def __repr__(self) -> str:
        return f"<Registry of {len(self._kinds)} event types>"

    def fault(self, event: Event, data: str) -> str | None:
        """Why this event, with its data as JSON, may not be emitted, in words that follow its name; or None.

        The words hold no value of the event's, nor a key of its data that its model does not name.
        """
        kind = self._kinds.get(event.event_type)
        if kind is None:
            return "is no event type of the registry"
        if event.aggregate_type not in kind.aggregate_types:
            return f"has an aggregate_type that the registry does not allow, which is {' or '.join(kind.allowed)}"
        model = kind.models.get(event.version)
        if model is None:
            known = ", ".join(map(str, sorted(kind.models)))
            return f"has version {event.version}, the registry knows {known}"
        fault = model.fault(data)
        return f"has data that its model for version {event.version} refuses: {fault}" if fault else None


class _Kind:
    """A rule, with its models ready to check."""

    __slots__ = ("aggregate_types", "allowed", "models")

    def __init__(self, event_type: str, rule: Rule) -> None:
        self.aggregate_types = frozenset(rule.aggregate_types)
        self.allowed = sorted(self.aggregate_types)
        self.models = {version: _Model(event_type, version, kind) for version, kind in rule.versions.items()}


class _Model:
    """Says what is wrong with data, in the words of its own schema alone."""

    __slots__ = ("_adapter", "_words")

    def __init__(self, event_type: str, version: int, kind: Any) -> None:
        name = f"event type {event_type!r}, version {version}"
        try:
            self._adapter: TypeAdapter[Any] = TypeAdapter(kind)
            # Before 2.10 what is incomplete is noticed by reading the schema.
            if rebuild := getattr(self._adapter, "rebuild", None):
                rebuild(raise_errors=True)
            self._words = frozenset(_words_of(self._adapter.core_schema))
        except PydanticUndefinedAnnotation as error:
            raise TypeError(f"{name}: the model names {error.name}, which is not defined") from error
        except PydanticUserError as error:
            reason = error.message.partition("\n")[0]
            raise TypeError(f"{name}: pydantic can check nothing against {repr(kind)[:100]}: {reason}") from error

    def fault(self, data: str) -> str | None:
        """What pydantic has against this JSON: paths and reasons, never its messages, which quote the input."""
        try:
            self._adapter.validate_json(data)
        except ValidationError as error:
            faults = error.errors(include_url=False, include_context=False, include_input=False)
        else:
            return None
        # Out of the handler, so that nothing raised from here on has the quoting error in its context.
        told = [self._told(fault) for fault in faults[:_FAULTS]]
        more = [f"and {len(faults) - _FAULTS} more"] if len(faults) > _FAULTS else []
        return ", ".join(told + more)

    def _told(self, fault: ErrorDetails) -> str:
        steps = [str(step) if isinstance(step, int) or step in self._words else _ANY for step in fault["loc"]]
        path = ".".join(steps[:_STEPS] + ["…"] * (len(steps) > _STEPS))
        reason = fault["type"] if _REASON.fullmatch(fault["type"]) else "refused"
        return f"{path} {reason}".lstrip()


def _each(rules: tuple[Mapping[str, Rule], ...]) -> Iterator[tuple[str, Rule]]:
    for mapping in rules:
        if not isinstance(mapping, Mapping):
            raise TypeError(f"a Registry takes mappings of event type to Rule, not {type(mapping).__name__}")
        for event_type, rule in mapping.items():
            _require_name(event_type, "an event type")
            if not isinstance(rule, Rule):
                raise TypeError(f"event type {event_type!r} has a {type(rule).__name__}, not a Rule")
            yield event_type, rule


def _names(given: object) -> Collection[str]:
    if isinstance(given, Mapping | bytes) or not isinstance(given, Collection):
        raise TypeError(f"a Rule takes an aggregate type or a collection of them, not {type(given).__name__}")
    return given


def _versions(given: object) -> Mapping[int, Any]:
    if not isinstance(given, Mapping):
        raise TypeError(f"a Rule takes a mapping of version to model, not {type(given).__name__}")
    if not given:
        raise ValueError("a Rule has no versions; give it a model for version 1 at least")
    for version in given:
        if not isinstance(version, int) or isinstance(version, bool):
            raise TypeError(f"version {version!r} of a Rule is of type {type(version).__name__}, not int")
        if not 1 <= version <= VERSION_MOST:
            raise ValueError(f"version {version} of a Rule is not a whole number from 1 to {VERSION_MOST}")
    return given


def _require_name(name: object, what: str) -> None:
    if not isinstance(name, str):
        raise TypeError(f"{what} is a text, not of type {type(name).__name__}")
    if not 1 <= (size := len(name.encode(errors="surrogatepass"))) <= NAME_BYTES:
        raise ValueError(f"{what} has {size} bytes, the limit is 1 to {NAME_BYTES}")


def _words_of(schema: object) -> Iterator[str]:
    """The names that a core schema gives to fields, types and the members of a union: they are no data."""
    if isinstance(schema, list | tuple):
        for part in schema:
            yield from _words_of(part)
    elif isinstance(schema, Mapping):
        for key, part in schema.items():
            match key:
                case "name" | "alias" | "type" | "validation_alias":
                    yield from _texts(part)
                case "cls":
                    yield from _texts(getattr(part, "__name__", None))
                case "fields" | "choices" if isinstance(part, Mapping):
                    yield from filter(lambda name: isinstance(name, str), part)
            if key not in _VALUES:
                yield from _words_of(part)


def _texts(part: object) -> Iterator[str]:
    """The texts of an alias, which is one, or a path, or a choice of paths."""
    if isinstance(part, str):
        yield part
    elif isinstance(part, list | tuple):
        for step in part:
            yield from _texts(step)
