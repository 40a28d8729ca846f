"""Consumers of one process whose events are moved by any of them: who stores some for another tells it."""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple


class Kept(NamedTuple):
    """What was stored of one type for one consumer."""

    consumer: str
    event_type: str
    ordering_key: str
    """One of those that there are; empty for events without."""
    events: int


# What was stored for a consumer, and how many seconds that took.
Tell = Callable[[Sequence[Kept], float], None]


class Neighbours:
    """Whom to tell, by the consumer's name; those of other processes look for themselves."""

    def __init__(self) -> None:
        self._known: dict[str, Tell] = {}

    def join(self, consumer: str, tell: Tell) -> None:
        """Have this consumer told from here on."""
        self._known[consumer] = tell

    def leave(self, consumer: str) -> None:
        """Tell it no longer."""
        self._known.pop(consumer, None)

    def stored(self, kept: Iterable[Kept], seconds: float, elsewhere: Callable[[str, Sequence[Kept]], None]) -> None:
        """Tell each of these consumers what was stored for it; `elsewhere` is called for those of other processes."""
        by_consumer = attrgetter("consumer")
        for consumer, of_consumer in groupby(sorted(kept, key=by_consumer), by_consumer):
            its = list(of_consumer)
            if (tell := self._known.get(consumer)) is not None:
                tell(its, seconds)
            else:
                elsewhere(consumer, its)
