"""A backlog that is drained, by whom, in what time, and what must be true of it afterwards."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from benchmarks.backlog import empty, fill, pending, settle
from benchmarks.contest import Contestant, ContestError, Meter, Race, race
from benchmarks.stand import Stand
from benchmarks.topic import Topic

RELAY = "benchmarks.relay_drain"
LIMIT = "benchmarks.limit"
UNIT = "events/s"
# Whoever is to be timed has drained so many before, all of which were read. Google's emulator gives a reader about
# 2,000 a second: of what follows, the number is checked, and what has been read by the end.
_PROOF = 3_000
# Before the clock starts, each process has drained so many, over all connections that it will have.
_STARTERS = 6_000
_STARTER_KEYS = 10
_PROOF_SECONDS, _SAMPLE_SECONDS = 30.0, 10.0


@dataclass(frozen=True)
class Backlog:
    """The events that wait."""

    rows: int
    size: int = 400  # bytes of data in each
    keys: int = 0
    most: int | None = None  # of which so many are drained, and what is under way by then; all of them without it


@dataclass(frozen=True)
class Task:
    """What is to be published, and how one sees what is left of it."""

    who: str
    backlog: Backlog
    enter: Callable[[str], Sequence[Contestant]]  # they are ready for what comes to wait, and know the topic
    fill: Callable[[], None]  # lets it wait
    left: Callable[[], int]
    starters: int = 0  # that are published before the clock starts
    meters: Callable[[Sequence[Contestant]], Mapping[str, Meter]] = field(default=lambda _: {})

    def timed(self, stand: Stand, *, all_read: bool = False) -> Race:
        """Have it done. Raises ContestError unless everything was published, and is what it should be."""
        with stand.topic(self.backlog.rows + self.starters) as topic:
            contestants = self.enter(topic.name)
            try:
                topic.taken()
                self.fill()
                meters = self.meters(contestants)
            except BaseException:  # Ctrl-C, too, leaves no process behind
                for contestant in contestants:
                    contestant.end()
                raise
            done = race(contestants, meters)
            published, left = done.events, self.left()
            if published + left != self.backlog.rows or published < (self.backlog.most or self.backlog.rows):
                raise ContestError(
                    f"{self.who} published {published} of {self.backlog.rows} events and left {left} of them pending"
                )
            if (taken := topic.taken()) < published:
                raise ContestError(f"{self.who} told of {published} events, and the broker has had {taken} messages")
            self._arrived(topic, self.backlog.rows + self.starters if all_read else 1, all_read=all_read)
        return done

    def _arrived(self, topic: Topic, messages: int, *, all_read: bool) -> None:
        found = topic.arrived(messages, _PROOF_SECONDS if all_read else _SAMPLE_SECONDS)
        if faults := found.faults(self.backlog.size):
            raise ContestError(f"{self.who} published something else: {faults}")
        if found.messages < messages:
            raise ContestError(f"of {messages} events of {self.who} {found.messages} could be read")


def drain(stand: Stand, backlog: Backlog, program: str = RELAY, processes: int = 1) -> float:
    """Let a program, or several of it, publish a new backlog; answer with the events a second."""
    empty(stand.database_url)
    done = task(stand, backlog, program, processes).timed(stand)
    return done.events / done.seconds


def task(stand: Stand, backlog: Backlog, program: str = RELAY, processes: int = 1) -> Task:
    """To drain events that are added to the outbox."""
    url, starters = stand.database_url, Backlog(_STARTERS, backlog.size, min(backlog.keys, _STARTER_KEYS))
    most = [] if backlog.most is None else [str(backlog.most)]

    def started(topic: str) -> Contestant:
        _fill(url, starters)
        return stand.start(program, topic, *most)

    return Task(
        program,
        backlog,
        enter=lambda topic: [started(topic) for _ in range(processes)],
        fill=partial(_fill, url, backlog),
        left=partial(pending, url),
        starters=processes * _STARTERS,
    )


def prove(stand: Stand, program: str) -> None:
    """Let it drain a backlog of which every message is read, unless it has done so in this run."""
    if program not in stand.proven:
        empty(stand.database_url)
        task(stand, Backlog(_PROOF), program).timed(stand, all_read=True)
        stand.proven.add(program)


def warm_up(stand: Stand, events: int) -> None:
    """A new emulator, which compiles what it will run: it is slower at first, whoever is measured.

    The programs that are measured show that they publish what they say.
    """
    stand.renew()
    for program in (LIMIT, RELAY):
        prove(stand, program)
    drain(stand, Backlog(events), LIMIT)


def _fill(url: str, backlog: Backlog) -> None:
    fill(url, backlog.rows, backlog.size, backlog.keys)
    settle(url)
