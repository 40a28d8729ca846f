"""Topics that take nothing: each is left alone for itself, and asked again after delays that double."""

from collections.abc import Sequence
from dataclasses import dataclass

from relay.kernel.backoff import Backoff, Delay
from relay.outbox.outbox import START, Place


@dataclass(slots=True)
class _Open:
    """A topic whose circuit is open."""

    since: float
    backoff: Backoff
    probe_at: float
    place: Place = START  # where the next probe looks on
    probes: int = 0


class Circuits:
    """Which topics are open. The caller tells the time."""

    def __init__(self, delay: Delay) -> None:
        self._delay = delay
        self._open: dict[str, _Open] = {}

    @property
    def open_topics(self) -> Sequence[str]:
        """The topics whose rows are left out of the claim."""
        return tuple(self._open)

    def due(self, now: float) -> Sequence[str]:
        """The open topics that are to be asked again, those that wait for it longest first."""
        waiting = sorted((circuit.probe_at, topic) for topic, circuit in self._open.items() if circuit.probe_at <= now)
        return [topic for _, topic in waiting]

    def place(self, topic: str) -> Place:
        """Where the next probe of an open topic looks on."""
        return self._open[topic].place

    def open(self, topic: str, now: float) -> float:
        """The topic takes nothing; returns in how many seconds it is asked again."""
        backoff = Backoff(self._delay)
        wait = backoff.next()
        self._open[topic] = _Open(now, backoff, now + wait)
        return wait

    def in_vain(self, topic: str, place: Place, now: float) -> tuple[int, float]:
        """A probe was not taken; returns the number of probes so far, and the seconds until the next."""
        circuit = self._open[topic]
        circuit.probes += 1
        circuit.place = place
        wait = circuit.backoff.next()
        circuit.probe_at = now + wait
        return circuit.probes, wait

    def not_asked(self, topic: str, now: float) -> None:
        """Others hold the rows that the probe looked at; it comes back soon."""
        circuit = self._open[topic]
        circuit.probe_at = now + self._delay.first

    def close(self, topic: str, now: float) -> tuple[int, float]:
        """The topic takes messages, or has none left; returns the probes in vain, and for how long it was open."""
        circuit = self._open.pop(topic)
        return circuit.probes, now - circuit.since
