"""Whether the relay is ready, and whether it is alive: told from what happens on the road, not from the process.

A process whose event loop answers may still publish nothing. So both answers come from the passes themselves: what
ended, when, and what the broker made of it. Nothing here asks the database or the broker anything.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import Any, Protocol

import psycopg

from relay.errors import ConfigurationError, SchemaError
from relay.kernel.line_redaction import Redaction
from relay.kernel.observe import LoopDied, PassFailed, PassFinished, ShutdownBegan
from relay.kernel.runner import Pace
from relay.operate.events import Reconnected, Started
from relay.outbox.events import Looked
from relay.publisher.events import BatchSettled, TopicClosed, TopicOpened, TopicProbed

# A topic counts as asked for this long after it last took something, or was last heard of.
LATELY_SECONDS = 60.0
# Topics come from rows: so many are remembered, and so many named in a sentence.
MOST_TOPICS = 1_000
MOST_NAMED = 10


class State(Enum):
    """How one check stands; what is degraded works, and somebody should look."""

    OK = "ok"
    DEGRADED = "degraded"
    FAILED = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One check by name, with a sentence where it is not ok."""

    name: str
    state: State
    detail: str = ""

    def as_json(self) -> dict[str, str]:
        """The check as probes see it."""
        return {"status": self.state.value} | ({"detail": self.detail} if self.detail else {})


@dataclass(frozen=True, slots=True)
class Verdict:
    """What all checks say together: the worst of them."""

    checks: tuple[Check, ...]

    @property
    def state(self) -> State:
        """Failed where any check failed, degraded where any is."""
        states = {check.state for check in self.checks}
        return next((state for state in (State.FAILED, State.DEGRADED) if state in states), State.OK)

    @property
    def ok(self) -> bool:
        """Whether a probe is to be answered with yes."""
        return self.state is not State.FAILED

    def as_json(self) -> dict[str, Any]:
        """The verdict with its checks, as probes see it."""
        return {"status": self.state.value, "checks": {check.name: check.as_json() for check in self.checks}}


class Judge(Protocol):
    """Answers probes."""

    def ready(self) -> Verdict:
        """Whether what is asked of the relay is done."""
        ...

    def healthy(self) -> Verdict:
        """Whether it moves; one that does not is to be started anew."""
        ...


def longest_silence(pace: Pace, pass_seconds: float, grace: float, asleep: float = 0.0) -> float:
    """How long a pipeline that moves may go without a sign: the longest pause, then the longest pass.

    `asleep` is the longest time between two looks of a relay that sleeps.
    """
    pauses = (asleep, pace.busy, pace.idle.most + pace.idle.jitter, pace.error.most + pace.error.jitter)
    return max(pauses) + pass_seconds + grace


@dataclass(frozen=True, slots=True)
class _Topic:
    """What was last heard of a topic; it is forgotten at `until`."""

    open: bool
    until: float


class Health:
    """Listens to what happens, and answers from it whenever it is asked.

    `silence` is what `longest_silence` says of the runner; `hung` is the length from which on a pass did not end by
    itself but had to be cancelled, which proves that it was stuck and not that it moves. `topics` are those of the
    settings; one that only a row names may be mistyped, and says nothing of the broker. `redaction` is asked about
    errors.
    """

    def __init__(  # noqa: PLR0913 -- what it judges by, each by its name
        self,
        monotonic: Callable[[], float],
        silence: float,
        hung: float,
        topics: Collection[str] = (),
        runner: str = "publish",
        *,
        redaction: Redaction | None = None,
    ) -> None:
        self._monotonic = monotonic
        self._configured = frozenset(topics)
        self._silence = silence
        self._hung = hung
        self._runner = runner
        self._redaction = redaction or Redaction()
        self._moved = monotonic()
        self._database = Check("database", State.FAILED, "the database has not been reached yet")
        self._schema = Check("schema", State.FAILED, "the schema's version has not been read yet")
        self._passes = Check("pipeline", State.FAILED, "no pass has ended yet")
        self._topics: dict[str, _Topic] = {}
        self._stopping = ""
        self._died = ""

    def __call__(self, event: object) -> None:
        """Remember what the event says."""
        match event:
            case Started() | Reconnected():
                self._reached()
            case PassFinished(runner=self._runner):
                self._moves()
                self._reached()
                self._passes = Check("pipeline", State.OK)
            case Looked():
                # A relay that sleeps begins no pass.
                self._moves()
                self._reached()
            case PassFailed(runner=self._runner):
                self._failed(event)
            case BatchSettled():
                self._settled(event)
            case TopicOpened() | TopicProbed():
                self._hear(event.topic, open_=True, seconds=inf)  # until it is closed
            case TopicClosed():
                # Without rows it was not asked: what was last heard of it stands.
                self._hear(event.topic, open_=not event.taken, seconds=LATELY_SECONDS)
            case ShutdownBegan():
                self._stopping = event.reason or "asked to stop"
            case LoopDied():
                self._died = f"the loop of {event.runner} died: {self._said('loop_died', event)}"

    def ready(self) -> Verdict:
        """Whether events that are emitted now will be published: the last pass did its work and nothing is stuck."""
        return Verdict((self._database, self._schema, self._broker(), self._pipeline(), self._shutting_down()))

    def healthy(self) -> Verdict:
        """Whether the pipeline moves: what the relay waits out by itself, an outage for example, needs no restart.

        While the process stops it counts as moving: a watch of its own ends it in time.
        """
        if self._stopping and not self._died:
            return Verdict((Check("pipeline", State.OK),))
        return Verdict((self._movement(),))

    def _reached(self) -> None:
        self._database = Check("database", State.OK)
        self._schema = Check("schema", State.OK)

    def _moves(self) -> None:
        self._moved = self._monotonic()

    def _failed(self, event: PassFailed) -> None:
        if event.seconds < self._hung:
            self._moves()
        said = self._said("pass_failed", event)
        self._passes = Check("pipeline", State.FAILED, f"the last pass failed: {said}")
        if _holds(event.error, SchemaError):
            self._database = Check("database", State.OK)
            self._schema = Check("schema", State.FAILED, said)
        elif _holds(event.error, ConfigurationError, psycopg.Error):
            self._database = Check("database", State.FAILED, said)

    def _said(self, line: str, event: PassFailed | LoopDied) -> str:
        return self._redaction.of_error(line, event.error, runner=event.runner).error

    def _settled(self, event: BatchSettled) -> None:
        # As good as a pass that ended: a claim, the broker's answers and a commit. A backlog's first pass takes long.
        self._moves()
        self._reached()
        self._passes = Check("pipeline", State.OK)
        for topic in event.taken:
            known = self._topics.get(topic)
            # A topic with an open circuit may take a probe; the circuit says itself when it is closed.
            if known is None or not known.open:
                self._hear(topic, open_=False, seconds=LATELY_SECONDS)

    def _hear(self, topic: str, *, open_: bool, seconds: float) -> None:
        now = self._monotonic()
        self._topics.pop(topic, None)  # the order is that of the last word about each
        self._topics[topic] = _Topic(open_, now + seconds)
        if len(self._topics) > MOST_TOPICS:
            self._topics = dict(self._heard_of_lately(now))
        while len(self._topics) > MOST_TOPICS:
            del self._topics[next(iter(self._topics))]

    def _heard_of_lately(self, now: float) -> Iterator[tuple[str, _Topic]]:
        return ((name, topic) for name, topic in self._topics.items() if now < topic.until)

    def _broker(self) -> Check:
        asked = dict(self._heard_of_lately(self._monotonic()))
        closed = [name for name, topic in asked.items() if topic.open]
        if not closed:
            return Check("broker", State.OK)
        named_by_rows_alone = self._configured and self._configured.isdisjoint(closed)
        if len(closed) == len(asked) and not named_by_rows_alone:
            return Check("broker", State.FAILED, f"every topic that was asked for refuses messages: {_named(closed)}")
        others = "no other was asked for" if named_by_rows_alone and len(closed) == len(asked) else "others take them"
        return Check("broker", State.DEGRADED, f"refuse messages, while {others}: {_named(closed)}")

    def _pipeline(self) -> Check:
        movement = self._movement()
        return self._passes if movement.state is State.OK else movement

    def _movement(self) -> Check:
        if self._died:
            return Check("pipeline", State.FAILED, self._died)
        silent = self._monotonic() - self._moved
        if silent <= self._silence:
            return Check("pipeline", State.OK)
        return Check(
            "pipeline",
            State.FAILED,
            f"no pass of {self._runner} ended, no batch was settled and nobody looked for {silent:.0f} s; "
            f"one that moves shows it within {self._silence:.0f} s",
        )

    def _shutting_down(self) -> Check:
        if self._stopping:
            return Check("shutting_down", State.FAILED, f"stopping: {self._stopping}")
        return Check("shutting_down", State.OK)


def _holds(error: BaseException, *kinds: type[BaseException]) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(_holds(inner, *kinds) for inner in error.exceptions)
    return isinstance(error, kinds)


def _named(topics: list[str]) -> str:
    more = len(topics) - MOST_NAMED
    return ", ".join(sorted(topics)[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
