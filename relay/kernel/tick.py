"""`relay tick`: each runner once, in order, within a budget; for cron and CI."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from relay.kernel.clock import Clock
from relay.kernel.line_redaction import Redaction
from relay.kernel.shutdown import Shutdown
from relay.kernel.worker import Outcome, Worker


@dataclass(frozen=True, slots=True)
class TickReport:
    """What a tick did, by runner; None where the budget was spent before its turn."""

    outcomes: dict[str, Outcome | None]
    seconds: float

    @property
    def failures(self) -> list[BaseException]:
        """What runners raised, in their order. Errors that a report counts are none of these."""
        return [outcome.error for outcome in self.outcomes.values() if outcome and outcome.error]

    def as_json(self, redaction: Redaction | None = None) -> dict[str, Any]:
        """The report as the command prints it."""
        careful = redaction or Redaction()
        return {
            "duration_ms": round(self.seconds * 1000),
            "runners": {name: _runner_json(name, outcome, careful) for name, outcome in self.outcomes.items()},
        }


async def tick(
    workers: Sequence[Worker], shutdown: Shutdown, clock: Clock, overall_seconds: float, runner_seconds: float
) -> TickReport:
    """Run each worker once."""
    began = clock.monotonic()
    outcomes: dict[str, Outcome | None] = {}
    for worker in workers:
        left = overall_seconds - (clock.monotonic() - began)
        if left <= 0 or shutdown.stopping.is_set():
            outcomes[worker.runner.name] = None
        else:
            outcomes[worker.runner.name] = await worker.run_once(shutdown.stopping, runner_seconds, left)
    return TickReport(outcomes, clock.monotonic() - began)


def _runner_json(name: str, outcome: Outcome | None, redaction: Redaction) -> dict[str, Any]:
    if outcome is None:
        return {"ran": False}
    if not outcome.report.due:
        return {"ran": False, "due": False}
    report, error = outcome.report, outcome.error
    return {
        "ran": True,
        "processed": report.processed,
        "updated": report.updated,
        "skipped": report.skipped,
        "errors": report.errors,
        "next": report.next.value,
        "duration_ms": round(outcome.seconds * 1000),
        "error": redaction.of_error("pass_failed", error, runner=name).error if error else None,
    }
