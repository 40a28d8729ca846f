"""Patterns of event types, as lists of settings have them, and what holds for each type by the most specific one.

A list has parts, separated by commas or line breaks. A part has a pattern and, after the last `=`, what holds for it.
A pattern is an event type as it is, or the beginning of one followed by `*`. An exact type goes over every beginning, a
longer beginning over a shorter one; their order in the text means nothing. `*` alone is refused: every list has a
default for that.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, Self, TypeVar

from relay.envelope import NAME_BYTES

Value = TypeVar("Value")

# A comma at the end of a line is no empty part.
_LINE_END = re.compile(r",[^\S\n]*\n\s*")
# Event types that are remembered; services have tens of them, only a mistake has more than this.
_REMEMBERED = 10_000
_SHOWN = 100


@dataclass(frozen=True, slots=True)
class ByType(Generic[Value]):
    """A value for every event type, decided once for each."""

    default: Value
    most_specific_first: tuple[tuple[str, Value], ...] = ()  # (pattern as it was written, its value)
    _known: dict[str, Value] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, default: Value, values: Mapping[str, Value]) -> Self:
        """The value of each pattern, in whatever order, and the one of all types that none matches."""
        return cls(default, tuple(sorted(values.items(), key=_specificity)))

    def value_of(self, event_type: str) -> Value:
        """What holds for this type."""
        if not self.most_specific_first:
            return self.default
        found = self._known.get(event_type)
        return self._remember(event_type) if found is None else found

    def _remember(self, event_type: str) -> Value:
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        matching = (value for pattern, value in self.most_specific_first if matches(pattern, event_type))
        return self._known.setdefault(event_type, next(matching, self.default))


def parts(text: str) -> Iterator[str]:
    """The parts between commas and line breaks; blank lines are nothing. Raises ValueError at an empty part."""
    for line in filter(None, map(str.strip, _LINE_END.sub("\n", text.strip()).split("\n"))):
        for part in map(str.strip, line.split(",")):
            if not part:
                raise ValueError(f"has an empty part in {shown(line)}; remove the comma that is too many")
            yield part


def divided(part: str) -> tuple[str, str] | None:
    """The pattern of a part and what it says, neither of them empty; None where it has not both."""
    pattern, equals, value = (piece.strip() for piece in part.rpartition("="))
    return (pattern, value) if equals and pattern and value else None


def pattern_fault(pattern: str, for_all: str) -> str | None:
    """Why this is no pattern, or None; `for_all` is what to write instead of one that matches every type."""
    if pattern == "*":
        return f"pattern would match every event type; {for_all}"
    if "*" in pattern[:-1]:
        return "pattern has a * before its end; write the beginning of an event type, then one *"
    try:
        size = len(pattern.encode())
    except UnicodeEncodeError:
        return "pattern is not UTF-8"
    if size > NAME_BYTES + pattern.endswith("*"):
        return f"pattern has {size} bytes, an event type has {NAME_BYTES} at most"
    if "\0" in pattern:
        return "pattern contains a NUL character, which no event type can"
    return None


def matches(pattern: str, event_type: str) -> bool:
    """Whether an event type is meant by a pattern."""
    return event_type.startswith(pattern[:-1]) if pattern.endswith("*") else event_type == pattern


def by_kind(patterns: Iterable[str]) -> tuple[list[str], list[str]]:
    """The event types among patterns, and the beginnings, without their `*`: for who compares in SQL."""
    given = list(patterns)
    return (
        [pattern for pattern in given if not pattern.endswith("*")],
        [pattern[:-1] for pattern in given if pattern.endswith("*")],
    )


def shown(text: str) -> str:
    """A part of a list as a sentence may repeat it."""
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")


def _specificity(choice: tuple[str, object]) -> tuple[bool, int, str]:
    """Sorts exact types before beginnings, and longer beginnings before shorter ones."""
    pattern, _ = choice
    return pattern.endswith("*"), -len(pattern), pattern
