"""Log lines of loops and their passes, the same in every program that has some."""

from typing import Any, assert_never

from relay.errors import ConfigurationError
from relay.kernel.failure import code, origin
from relay.kernel.line_writer import LineWriter, error_fields
from relay.kernel.log_line import Line
from relay.kernel.observe import CloseFailed, LoopDied, PassFailed, PassFinished, PassSkipped
from relay.kernel.repeats import Summary
from relay.upkeep.events import is_of_job

PassEvent = PassFinished | PassFailed | PassSkipped | LoopDied | CloseFailed
# The kind of failure that repeats.
PASS = "pass"  # noqa: S105 -- no password

LINES = (
    Line(
        "pass",
        ("debug",),
        "a pass that found something came to its end",
        ("runner", "processed", "updated", "skipped", "errors", "next", "seconds"),
    ),
    Line(
        "pass_failed",
        ("error",),
        "a pass raised, as when the database is away",
        ("runner", "code", "error", "raised_at", "seconds", "consequence", "remedy"),
    ),
    Line(
        "pass_failing",
        ("error",),
        "passes go on failing; at most once a minute",
        ("runner", "code", "error", "raised_at", "consequence", "remedy", "failures", "seconds", "recoveries"),
    ),
    Line(
        "pass_recovered",
        ("info",),
        "a pass came to its end again",
        ("runner", "failures", "seconds", "recoveries"),
    ),
    Line("pass_skipped", ("warning",), "the runner was still busy with the pass before", ("runner", "error")),
    Line(
        "loop_died",
        ("error",),
        "a runner's loop ended by an error, and with it the process",
        ("runner", "code", "error", "raised_at", "consequence"),
    ),
    Line(
        "close_failed",
        ("error",),
        "a runner did not let go of its connections",
        ("runner", "code", "error", "consequence"),
    ),
)


class PassLines:
    """Writes the lines; the writer's `named` has to name what passes fail of by `runner`."""

    def __init__(self, lines: LineWriter) -> None:
        self._lines = lines

    def tell(self, event: PassEvent) -> None:
        """Write the event's line, if it has one."""
        match event:
            case PassFinished():
                self._finished(event)
            case PassFailed():
                self._failed(event)
            case PassSkipped():
                error = "the pass before is still under way"
                self._lines.write("warning", "pass_skipped", runner=event.runner, error=error)
            case LoopDied():
                self._lines.write(
                    "error",
                    "loop_died",
                    runner=event.runner,
                    **error_fields(event.error),
                    raised_at=origin(event.error),
                    consequence="the process stops",
                )
            case CloseFailed():
                self._lines.write(
                    "error",
                    "close_failed",
                    runner=event.runner,
                    **error_fields(event.error),
                    consequence="the end of the process drops its connections; its work had ended before",
                )
            case _:
                assert_never(event)

    def _finished(self, event: PassFinished) -> None:
        self._lines.worked(PASS, event.runner)
        report = event.report
        if report.processed or report.errors or report.skipped:
            self._lines.write(
                "debug",
                "pass",
                runner=event.runner,
                processed=report.processed,
                updated=report.updated,
                skipped=report.skipped,
                errors=report.errors,
                next=report.next.value,
                seconds=round(event.seconds, 3),
            )

    def _failed(self, event: PassFailed) -> None:
        advice = self._lines.repeats.failed(PASS, event.runner, code(event.error))
        self._lines.failed(
            PASS,
            advice,
            runner=event.runner,
            **error_fields(event.error),
            raised_at=origin(event.error),
            consequence=_consequence(event.runner),
            remedy=_remedy(event),
            **({} if isinstance(advice, Summary) else {"seconds": round(event.seconds, 3)}),
        )


def named(subject: str) -> dict[str, Any]:
    """The fields of a line that says that failures of kind PASS are over."""
    return {"runner": subject}


def _remedy(event: PassFailed) -> str | None:
    """For a job: what is wrong of its publisher, a line of its own or the end of the process says."""
    if not is_of_job(event.runner):
        return None
    if isinstance(event.error, ConfigurationError):
        return "error says what to correct; until then the process goes on trying, and jobs that work go on"
    return (
        "see that the database answers, and takes what DATABASE_URL says; the process goes on trying, and needs no "
        "restart unless a setting is wrong"
    )


def _consequence(runner: str) -> str:
    if is_of_job(runner):
        return "the job waits until a pass works again; of the slots that it misses the latest is made up for"
    return "what the pass had begun is rolled back, and stays pending"
