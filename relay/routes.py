"""Which topic an event goes to: the one that its row names, else the one of its type's route, else the default.

    RELAY_ROUTES = "order.*=orders, order.refund.*=refunds, invoice.paid=projects/acme/topics/billing"

Each part is a pattern and its topic: see `relay.patterns` for what a list is and which of its patterns decides.

The database decides in the same way, where it has to, in SQL: see `patterns`.
"""

import re
from dataclasses import dataclass
from typing import Any, Self

from relay.envelope import topic_fault
from relay.patterns import ByType, divided, parts, pattern_fault, shown

# A route, and then more: a comma is missing.
_NO_COMMA = re.compile(r"=\s*[^\s;]+[\s;]")
_SPECIAL_IN_LIKE = re.compile(r"[\\%_]")


@dataclass(frozen=True, slots=True)
class Routes(ByType[str]):
    """Where events go, by their type. Built by `parse`."""

    @classmethod
    def parse(cls, text: str, default: str) -> Self:
        """Read the text of RELAY_ROUTES; `default` is RELAY_TOPIC. Raises ValueError with one sentence."""
        routes: dict[str, str] = {}
        for part in parts(text):
            pattern, topic = _route(part)
            if pattern in routes:
                raise ValueError(f"routes {shown(pattern)} twice, to {routes[pattern]} and to {topic}; keep one")
            routes[pattern] = topic
        return cls.of(default, routes)

    def topic_of(self, topic: str | None, event_type: str) -> str:
        """The topic of a row with this `topic` (None where it names none) and event type."""
        return self.value_of(event_type) if topic is None else topic

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


def _route(part: str) -> tuple[str, str]:
    """The pattern and the topic of one part. A topic has no `=` in its name, so the last one divides them."""
    pieces = divided(part)
    if pieces is None:
        raise ValueError(f"has the part {shown(part)}, which is no route; write it like order.*=orders")
    pattern, topic = pieces
    if _NO_COMMA.search(pattern):
        raise ValueError(
            f"has the route {shown(part)}, which looks like several; "
            "put a comma between routes, like order.*=orders, invoice.*=billing"
        )
    if fault := pattern_fault(pattern, "name the topic for all others in RELAY_TOPIC") or _topic_fault_in_route(topic):
        raise ValueError(f"has the route {shown(part)}, whose {fault}")
    return pattern, topic


def _topic_fault_in_route(topic: str) -> str | None:
    fault = topic_fault(topic)
    return f"topic {shown(topic)} {fault}" if fault else None


def _like(pattern: str) -> str:
    beginning = pattern.removesuffix("*")
    return _SPECIAL_IN_LIKE.sub(r"\\\g<0>", beginning) + ("%" if pattern.endswith("*") else "")
