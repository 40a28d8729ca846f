"""Topics that take nothing: each is left alone for itself, and asked again after delays that double."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf

from relay.kernel.backoff import Backoff, Delay
from relay.outbox.rows import START, Place

# Event types that are remembered of an open topic; services have tens of them.
MOST_TYPES = 10_000


@dataclass(slots=True)
class _Open:
    """A topic whose circuit is open."""

    since: float
    backoff: Backoff
    probe_at: float
    place: Place  # where the next probe looks on
    types: set[str] = field(default_factory=set)  # of the events that were seen to go there by their type
    probes: int = 0
    looks: int = 0


class Circuits:
    """Which topics are open. The caller tells the time."""

    def __init__(self, delay: Delay) -> None:
        self._delay = delay
        self._open: dict[str, _Open] = {}
        # Where the probes of topics that opened and closed would look on, until a batch of theirs went out.
        self._places: dict[str, Place] = {}

    @property
    def open_topics(self) -> Sequence[str]:
        """The topics whose rows are left out of the claim."""
        return tuple(self._open)

    @property
    def open_types(self) -> Sequence[str]:
        """The types of events that go to one of these unless their row names a topic itself."""
        return tuple({name for circuit in self._open.values() for name in circuit.types})

    def is_open(self, topic: str) -> bool:
        """Whether the topic's rows are left out of the claim."""
        return topic in self._open

    def due(self, now: float) -> Sequence[str]:
        """The open topics that are to be asked again, those that wait for it longest first."""
        waiting = sorted((circuit.probe_at, topic) for topic, circuit in self._open.items() if circuit.probe_at <= now)
        return [topic for _, topic in waiting]

    def asking(self, topics: Iterable[str]) -> None:
        """Probes of these are under way: nobody else asks them."""
        for topic in topics:
            self._open[topic].probe_at = inf

    def types(self, topic: str) -> Sequence[str]:
        """The types of events that are known to go to an open topic."""
        return tuple(self._open[topic].types)

    def looks(self, topic: str) -> int:
        """How often rows of an open topic were looked for."""
        return self._open[topic].looks

    def place(self, topic: str) -> Place:
        """Where the next probe of an open topic looks on."""
        return self._open[topic].place

    def probes(self, topic: str) -> int:
        """How often an open topic was asked in vain."""
        return self._open[topic].probes

    def open(self, topic: str, types: Iterable[str], now: float) -> float:
        """The topic takes nothing; returns in how many seconds it is asked again."""
        backoff = Backoff(self._delay)
        wait = backoff.next()
        self._open[topic] = _Open(now, backoff, now + wait, self._places.pop(topic, START))
        self.learn(topic, types)
        return wait

    def learn(self, topic: str, types: Iterable[str]) -> bool:
        """Events of these types go to an open topic; returns whether that is news."""
        known = self._open[topic].types
        before = len(known)
        known.update(list(types)[: MOST_TYPES - before])
        return len(known) > before

    def in_vain(self, topic: str, place: Place, now: float, at_least: float = 0.0) -> tuple[int, float]:
        """A probe was not taken; returns the number of probes so far, and the seconds until the next."""
        circuit = self._open[topic]
        circuit.probes += 1
        circuit.looks += 1
        circuit.place = place
        wait = max(circuit.backoff.next(), at_least)
        circuit.probe_at = now + wait
        return circuit.probes, wait

    def not_asked(self, topic: str, now: float, at_least: float = 0.0, place: Place | None = None) -> None:
        """The probe could not ask, because others hold the rows or the database is away; it comes back soon.

        Where it has looked, it looks on.
        """
        circuit = self._open[topic]
        circuit.looks += 1
        circuit.probe_at = now + max(self._delay.first, at_least)
        circuit.place = place or circuit.place

    def close(self, topic: str, now: float) -> tuple[int, float]:
        """The topic takes messages, or has none left; returns the probes in vain, and for how long it was open."""
        circuit = self._open.pop(topic)
        if circuit.place != START:
            self._places[topic] = circuit.place
        return circuit.probes, now - circuit.since

    def well(self, topic: str) -> None:
        """A batch of the topic went out."""
        self._places.pop(topic, None)
