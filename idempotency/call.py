"""A request to the store: one script over any number of events, and how its answer is read."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Generic, TypeAlias, TypeVar

from redis.crc import key_slot

from idempotency.errors import IdempotencyError
from idempotency.script import Script

T = TypeVar("T")

Reader: TypeAlias = Callable[[Sequence[Any], list[str], Iterator[bytes], float], list[Any]]

_NOTHING: Mapping[int, IdempotencyError] = MappingProxyType({})

# A script keeps the server from everybody else: one over a thousand events for some milliseconds.
MOST_EVENTS = 1_000


def _nothing() -> Mapping[int, IdempotencyError]:
    return _NOTHING


@dataclass(slots=True)
class Call(Generic[T]):
    """One script over some events: `items` is what the reader needs to know of each, `refused` those never asked."""

    script: Script
    items: Sequence[Any]
    keys: list[str]
    shared: tuple[bytes, ...]
    args: Sequence[bytes]
    read: Reader
    refused: Mapping[int, IdempotencyError] = field(default_factory=_nothing)

    def command(self, *, by_text: bool = False) -> tuple[Any, ...]:
        """As Redis takes it; the text of the script only where the server does not know it yet."""
        name, script = ("EVAL", self.script.text) if by_text else ("EVALSHA", self.script.sha)
        return (name, script, len(self.keys), *[key.encode() for key in self.keys], *self.shared, *self.args)

    def answers(self, raw: bytes | list[bytes], sent_at: float) -> list[T | IdempotencyError]:
        """What the script said of each of `items`: one line of words, or a list of it and of results."""
        words, *results = raw if isinstance(raw, list) else (raw,)
        return self.read(self.items, words.decode("ascii").split(" "), iter(results), sent_at)

    def whole(self, answers: list[T | IdempotencyError]) -> list[T | IdempotencyError]:
        """The answers with those among them that were refused without asking, in the order of the caller."""
        for position, error in sorted(self.refused.items()):
            answers.insert(position, error)
        return answers

    def by_slot(self) -> list[Sequence[int]]:
        """The positions of the events that lie in one slot of a cluster, and so on one server."""
        slots: dict[int, list[int]] = {}
        for position in range(len(self.items)):
            slots.setdefault(key_slot(self.keys[position * self.script.keys].encode()), []).append(position)
        return [part for positions in slots.values() for part in _bounded(positions)]

    def by_size(self) -> list[Sequence[int]]:
        """The positions of all events, in parts that do not hold up a server."""
        return _bounded(range(len(self.items)))

    def part(self, positions: Sequence[int]) -> "Call[T]":
        """The same call over some of its events."""
        return Call(
            self.script,
            [self.items[each] for each in positions],
            _of(self.keys, self.script.keys, positions),
            self.shared,
            _of(self.args, self.script.args, positions),
            self.read,
        )


def _bounded(positions: Sequence[int]) -> list[Sequence[int]]:
    return [positions[start : start + MOST_EVENTS] for start in range(0, len(positions), MOST_EVENTS)]


def _of(values: Sequence[T], width: int, positions: Sequence[int]) -> list[T]:
    return [value for each in positions for value in values[each * width : (each + 1) * width]]
