"""Whether a relay that publishes nothing is ready and alive: told from its jobs, and from its looks at the database.

A job may have its next slot tomorrow, so that its silence says nothing. What comes every RELAY_STATS_MS is a look: that
it comes says that the process moves, and what it found says whether the database answers.
"""

from collections.abc import Callable

from relay.kernel.line_redaction import Redaction
from relay.kernel.observe import LoopDied, PassFailed, PassFinished, ShutdownBegan
from relay.operate.events import Started
from relay.operate.health import MOST_NAMED, Check, State, Verdict
from relay.operate.stats import RelayStats, StatsRunner


class JobHealth:
    """Listens to what happens, and answers from it; `silence` is how long one that moves may go without a look."""

    def __init__(self, monotonic: Callable[[], float], silence: float, *, redaction: Redaction | None = None) -> None:
        self._monotonic = monotonic
        self._silence = silence
        self._redaction = redaction or Redaction()
        self._moved = monotonic()
        self._database = Check("database", State.FAILED, "the database has not been reached yet")
        self._failing: dict[str, str] = {}
        self._working: set[str] = set()
        self._stopping = ""
        self._died = ""

    def __call__(self, event: object) -> None:
        """Remember what the event says."""
        match event:
            case Started() | RelayStats(error=None):
                self._database = Check("database", State.OK)
            case RelayStats(error=str() as error):
                said = self._redaction.words("relay_stats", "info", code="", error=error).error
                self._database = Check("database", State.FAILED, said)
            case PassFinished(runner=StatsRunner.name):
                self._moved = self._monotonic()
            case PassFinished(runner=runner):
                self._working.add(runner)
                self._failing.pop(runner, None)
            case PassFailed(runner=runner):
                self._working.discard(runner)
                self._failing[runner] = self._said("pass_failed", event)
            case ShutdownBegan():
                self._stopping = event.reason or "asked to stop"
            case LoopDied():
                self._died = f"the loop of {event.runner} died: {self._said('loop_died', event)}"

    def ready(self) -> Verdict:
        """Whether jobs run when they are due: the database answers, and the last look for a slot did not fail."""
        return Verdict((self._database, self._jobs(), self._shutting_down()))

    def healthy(self) -> Verdict:
        """Whether the process moves; while it stops it counts as moving, for a watch of its own ends it in time."""
        if self._stopping and not self._died:
            return Verdict((Check("pipeline", State.OK),))
        return Verdict((self._movement(),))

    def _jobs(self) -> Check:
        movement = self._movement()
        if movement.state is not State.OK:
            return movement
        if not self._failing:
            return Check(
                "pipeline", State.OK if self._working else State.FAILED, "" if self._working else "no pass yet"
            )
        state = State.DEGRADED if self._working else State.FAILED
        named = "; ".join(f"{name}: {said}" for name, said in list(self._failing.items())[:MOST_NAMED])
        return Check("pipeline", state, f"the last pass failed of {named}")

    def _movement(self) -> Check:
        if self._died:
            return Check("pipeline", State.FAILED, self._died)
        silent = self._monotonic() - self._moved
        if silent <= self._silence:
            return Check("pipeline", State.OK)
        return Check(
            "pipeline",
            State.FAILED,
            f"nobody looked at the database for {silent:.0f} s; a process that moves does within {self._silence:.0f} s",
        )

    def _shutting_down(self) -> Check:
        if self._stopping:
            return Check("shutting_down", State.FAILED, f"stopping: {self._stopping}")
        return Check("shutting_down", State.OK)

    def _said(self, line: str, event: PassFailed | LoopDied) -> str:
        return self._redaction.of_error(line, event.error, runner=event.runner).error
