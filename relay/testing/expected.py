"""What a test says of an event, and where an event is another."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypedDict, cast
from uuid import UUID

from pydantic_core import to_jsonable_python

from relay.event import Actor
from relay.testing.emitted import EmittedEvent, State


class Fields(TypedDict, total=False):
    """What may be said of an event beside its type; what is left out may be anything.

    `data` is the whole of it, as JSON has it: a Decimal, a date or a model is compared as emit writes it.
    `data_contains` is a part: mappings in it, at any depth, may have more keys than are named; all else is equal.
    So with `attributes` and `actor`, to which tracing and others may add.
    """

    event_id: UUID | str
    version: int
    aggregate_type: str
    aggregate_id: str
    topic: str | None
    ordering_key: str | None
    dedup_key: str | None
    state: State | str
    actor: Actor | Mapping[str, Any] | None
    attributes: Mapping[str, str]
    data: Any
    data_contains: Mapping[str, Any]


class Difference(NamedTuple):
    """One place where an event is not as expected; what is missing on a side is MISSING there."""

    path: str
    found: Any
    wanted: Any


class _Missing:
    def __repr__(self) -> str:
        return "missing"


MISSING = _Missing()
_IN_PART = frozenset({"actor", "attributes", "data_contains"})


class Expected:
    """An event as a test has described it."""

    def __init__(self, event_type: str | None, fields: Fields) -> None:
        given = cast("dict[str, Any]", fields)
        if event_type is not None and not isinstance(event_type, str):
            raise TypeError(f"event_type is of type {type(event_type).__name__}, not a text")
        if unknown := sorted(given.keys() - Fields.__annotations__.keys()):
            raise TypeError(
                f"an event has no field {', '.join(unknown)}; "
                f"what can be said of one: {', '.join(Fields.__annotations__)}"
            )
        if "data" in given and "data_contains" in given:
            raise TypeError("data= is all of the data, data_contains= a part of it; give one of them")
        for name in ("attributes", "data_contains"):
            if name in given and not isinstance(given[name], Mapping):
                raise TypeError(f"{name}= is of type {type(given[name]).__name__}, not a mapping")
        self.event_type = event_type
        self.fields = {name: _as_emitted(value) for name, value in given.items()}

    def differences(self, event: EmittedEvent) -> list[Difference]:
        """Every place where the event is another; none where it is the one."""
        found = [] if self.event_type in {None, event.event_type} else [self._of_type(event)]
        for name, wanted in self.fields.items():
            path = "data" if name == "data_contains" else name
            found += _apart(path, _as_emitted(getattr(event, path)), wanted, in_part=name in _IN_PART)
        return found

    def _of_type(self, event: EmittedEvent) -> Difference:
        return Difference("event_type", event.event_type, self.event_type)


def _apart(path: str, found: Any, wanted: Any, *, in_part: bool) -> Iterator[Difference]:
    match found, wanted:
        case dict(), dict():
            for key in wanted if in_part else {**wanted, **found}:
                pair = found.get(key, MISSING), wanted.get(key, MISSING)
                yield from _apart(f"{path}.{key}", *pair, in_part=in_part)
        case list(), list() if len(found) == len(wanted):
            for place, pair in enumerate(zip(found, wanted, strict=True)):
                yield from _apart(f"{path}[{place}]", *pair, in_part=in_part)
        case _ if not _equal(found, wanted):
            yield Difference(path, found, wanted)


def _equal(found: Any, wanted: Any) -> bool:
    """As JSON has it: true is not 1. What is no JSON, such as pytest.approx, says itself what it equals."""
    if isinstance(wanted, int | float) and isinstance(wanted, bool) is not isinstance(found, bool):
        return False
    return found is not MISSING and bool(wanted == found)


def _as_emitted(value: Any) -> Any:
    """What emit makes of a value; matchers in it, which are no JSON, stay what they are."""
    try:
        return json.loads(json.dumps(value, default=to_jsonable_python))
    except (TypeError, ValueError):
        match value:
            case Mapping():
                return {str(key): _as_emitted(item) for key, item in value.items()}
            case list() | tuple():
                return [_as_emitted(item) for item in value]
            case _:
                return value
