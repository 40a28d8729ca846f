"""Which topic an event goes to: the one that its row names, else the one of its type's route, else the default.

    RELAY_ROUTES = "order.*=orders, order.refund.*=refunds, invoice.paid=projects/acme/topics/billing"

Routes are separated by commas or line breaks. Each has a pattern and, after the last `=`, its topic. A pattern is an
event type as it is, or the beginning of one followed by `*`. An exact type goes over every beginning, a longer
beginning over a shorter one; their order in the text means nothing. `*` alone is refused: the default is for that.

The database decides in the same way, where it has to, in SQL: see `patterns`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Self

from relay.envelope import NAME_BYTES, topic_fault

# A comma at the end of a line is no empty part.
_LINE_END = re.compile(r",[^\S\n]*\n\s*")
_SPECIAL_IN_LIKE = re.compile(r"[\\%_]")
# Event types that are remembered; services have tens of them, only a mistake has more than this.
_REMEMBERED = 10_000
_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Routes:
    """Where events go, decided once for every event type. Built by `parse`."""

    default: str
    most_specific_first: tuple[tuple[str, str], ...] = ()  # (pattern as it was written, topic)
    _known: dict[str, str] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def parse(cls, text: str, default: str) -> Self:
        """Read the text of RELAY_ROUTES; `default` is RELAY_TOPIC. Raises ValueError with one sentence."""
        routes: dict[str, str] = {}
        for part in _parts(text):
            pattern, topic = _route(part)
            if pattern in routes:
                raise ValueError(f"routes {_shown(pattern)} twice, to {routes[pattern]} and to {topic}; keep one")
            routes[pattern] = topic
        return cls(default, tuple(sorted(routes.items(), key=_specificity)))

    def topic_of(self, topic: str | None, event_type: str) -> str:
        """The topic of a row with this `topic` (None where it names none) and event type."""
        if topic is not None:
            return topic
        if not self.most_specific_first:
            return self.default
        found = self._known.get(event_type)
        return self._remember(event_type) if found is None else found

    @property
    def topics(self) -> tuple[str, ...]:
        """Every topic that is named here, once: the default, then those of the routes."""
        return tuple(dict.fromkeys((self.default, *(topic for _, topic in self.most_specific_first))))

    @property
    def patterns(self) -> list[str]:
        r"""The patterns as LIKE takes them, for statements that have to route; their topics are `pattern_topics`.

        The topic of a row is, with `default_topic` being `default`:

            coalesce(topic,
                     (select route.topic
                      from unnest(%(patterns)s::text[], %(pattern_topics)s::text[])
                           with ordinality as route (pattern, topic, place)
                      where event_type like route.pattern order by place limit 1),
                     %(default_topic)s)
        """
        return [_like(pattern) for pattern, _ in self.most_specific_first]

    @property
    def pattern_topics(self) -> list[str]:
        """The topic of each of `patterns`, in the same order."""
        return [topic for _, topic in self.most_specific_first]

    @property
    def as_parameters(self) -> dict[str, Any]:
        """All that statements need to route, by the names that they have there."""
        return {"patterns": self.patterns, "pattern_topics": self.pattern_topics, "default_topic": self.default}

    def _remember(self, event_type: str) -> str:
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        matching = (topic for pattern, topic in self.most_specific_first if _matches(pattern, event_type))
        return self._known.setdefault(event_type, next(matching, self.default))


def _parts(text: str) -> Iterator[str]:
    """The parts between commas and line breaks; blank lines are nothing, an empty part is a mistake."""
    for line in filter(None, map(str.strip, _LINE_END.sub("\n", text.strip()).split("\n"))):
        for part in map(str.strip, line.split(",")):
            if not part:
                raise ValueError(f"has an empty part in {_shown(line)}; remove the comma that is too many")
            yield part


def _route(part: str) -> tuple[str, str]:
    """The pattern and the topic of one part. A topic has no `=` in its name, so the last one divides them."""
    pattern, equals, topic = (piece.strip() for piece in part.rpartition("="))
    if not (equals and pattern and topic):
        raise ValueError(f"has the part {_shown(part)}, which is no route; write it like order.*=orders")
    if fault := _pattern_fault(pattern) or _topic_fault_in_route(topic):
        raise ValueError(f"has the route {_shown(part)}, whose {fault}")
    return pattern, topic


def _pattern_fault(pattern: str) -> str | None:
    if pattern == "*":
        return "pattern would match every event type; name the topic for all others in RELAY_TOPIC"
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


def _topic_fault_in_route(topic: str) -> str | None:
    fault = topic_fault(topic)
    return f"topic {_shown(topic)} {fault}" if fault else None


def _specificity(route: tuple[str, str]) -> tuple[bool, int, str]:
    """Sorts exact types before beginnings, and longer beginnings before shorter ones."""
    pattern, _ = route
    return pattern.endswith("*"), -len(pattern), pattern


def _matches(pattern: str, event_type: str) -> bool:
    return event_type.startswith(pattern[:-1]) if pattern.endswith("*") else event_type == pattern


def _like(pattern: str) -> str:
    beginning = pattern.removesuffix("*")
    return _SPECIAL_IN_LIKE.sub(r"\\\g<0>", beginning) + ("%" if pattern.endswith("*") else "")


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")
