"""The permits of a process that are free: a source that claims what it hands over asks first."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

from consumers.flow import Flow, Line
from consumers.handlers import plain
from consumers.sources.source import Share


class Permits:
    """Keeps what `sources.source.Demand` asks for."""

    def __init__(self, flow: Flow, lines_of: Callable[[str], Sequence[Line]], concurrency: int) -> None:
        self._flow = flow
        self._lines_of = lines_of
        self._concurrency = concurrency

    @property
    def freed(self) -> asyncio.Event:
        """Set when a permit may have become free; whoever waits for it clears it."""
        return self._flow.freed

    @property
    def room(self) -> int:
        """Permits that are free in all."""
        return 0 if self._flow.stands_still else self._room_apart + self._flow.room_in_batches

    @property
    def _room_apart(self) -> int:
        return max(0, self._concurrency - self._flow.active_apart)

    @property
    def idle(self) -> bool:
        """Whether nothing is handled, and nothing waits to be."""
        return not self._flow.active

    def handled(self, event_type: str) -> bool:
        """Whether a handler is for events of this type, in any version."""
        return any(line.handler is not None for line in self._lines_of(event_type))

    def paused(self, event_type: str) -> bool:
        """Whether nothing of this type is to begin for now, whatever room there is."""
        return all(plain(event_type) in line.paused for line in self._lines_of(event_type))

    def shares(self, event_types: Iterable[str]) -> Sequence[Share]:
        """How many of each of these types may begin now; those of which none may are left out.

        Types of one handler share its permits. Which of them is served first is for the caller, by their order. A type
        with handlers of both kinds, in two versions, is with those that it has more room in.
        """
        if self._flow.stands_still:
            return []
        apart = self._room_apart
        left: dict[Line, int] = {}
        widest: dict[str, Line] = {}
        for event_type in event_types:
            lines = [line for line in self._lines_of(event_type) if plain(event_type) not in line.paused]
            for line in lines:
                free = line.limit - line.active
                left.setdefault(line, free if line.in_batches else min(apart, free))
            best = max(lines, key=lambda line: left[line], default=None)
            if best is not None and left[best] > 0:
                widest[event_type] = best
        rooms = _divided(widest, left)
        singles = {event_type: room for event_type, room in rooms.items() if not widest[event_type].in_batches}
        batches = {event_type: room for event_type, room in rooms.items() if widest[event_type].in_batches}
        shares = (Share(apart, singles), Share(sum(batches.values()), batches))
        return [share for share in shares if share.rooms]


def _divided(widest: Mapping[str, Line], left: Mapping[Line, int]) -> Mapping[str, int]:
    """Divide among the types of one handler what it has: together they get no more than that."""
    sharers: dict[Line, list[str]] = {}
    for event_type, line in widest.items():
        sharers.setdefault(line, []).append(event_type)
    divided: dict[str, int] = {}
    for line, event_types in sharers.items():
        each, more = divmod(left[line], len(event_types))
        for place, event_type in enumerate(event_types):
            divided[event_type] = each + (place < more)
    return {event_type: divided[event_type] for event_type in widest if divided[event_type]}
