"""Log lines of jobs, the same in every program that runs them."""

from datetime import UTC, datetime
from typing import assert_never

from relay.kernel.failure import code, origin, redacted
from relay.kernel.line_writer import LineWriter, error_fields
from relay.kernel.log_line import Line
from relay.kernel.repeats import Hold, Summary, Write
from relay.upkeep.events import JobEvent, RunBegan, RunDeaf, RunEnded, RunFault, RunSkipped, RunUnrecorded, Status

_RUN = ("job", "slot", "worker")
_ERROR = ("code", "error")
_ADVICE = ("consequence", "remedy")
_FAULT = "run_fault"
_OURS = "relay."

LINES = (
    Line("run_began", ("debug",), "a job has its slot and its lock, and runs", _RUN),
    Line(
        "run_ended",
        ("info", "warning", "error"),
        "a run has ended: `done`, a warning where it counted errors; `cancelled` is a warning, `failed`, `timed_out`, "
        "`lost` and `killed` are errors",
        (*_RUN, "status", "counters", "errors", "seconds", *_ERROR, "raised_at", *_ADVICE),
    ),
    Line(
        _FAULT,
        ("warning",),
        "something in a run went wrong, and it goes on (`run.fault`); the first at once, the same at most once a "
        "minute, with how many there were since the job's last run without one",
        ("job", "worker", "what", *_ERROR, "raised_at", "faults", "consequence"),
    ),
    Line(
        "run_deaf",
        ("warning",),
        "a run was cancelled some seconds ago and goes on; once for each",
        ("job", "worker", "status", *_ADVICE),
    ),
    Line(
        "worker_already_running",
        ("warning",),
        "a slot came while the run before was still at work, here or elsewhere: it is left out",
        (*_RUN, *_ADVICE),
    ),
    Line(
        "run_unrecorded",
        ("warning",),
        "the history of a job could not be written; the job was not touched by that",
        ("job", "worker", *_ERROR, *_ADVICE),
    ),
)

_LEVELS = {
    Status.DONE: "info",
    Status.CANCELLED: "warning",
    Status.FAILED: "error",
    Status.TIMED_OUT: "error",
    Status.LOST: "error",
    Status.KILLED: "error",
}
_CONSEQUENCES = {
    Status.FAILED: "what it had committed stays; this slot is not repeated, the next one comes as ever",
    Status.TIMED_OUT: "it was cancelled; what it had committed stays, and the next slot comes as ever",
    Status.CANCELLED: "its process ends; what it had committed stays, and the next slot comes as ever",
    Status.LOST: "it was cancelled; what it had committed stays, and until then the next run may have begun beside it",
    Status.KILLED: "nobody saw its end; what it had committed stays, and the next slot comes as ever",
}
_REMEDIES = {
    Status.FAILED: "see error, and raised_at, which begins with the job's own line; its history is shown by: "
    "python -m relay runs --job {job}",
    Status.TIMED_OUT: "give the job a longer timeout=, or less to do in a run",
    Status.CANCELLED: "none is needed; a job that looks at run.stopping ends by itself",
    Status.LOST: "see in the server's log why it ended the connection; a job whose runs must not overlap for seconds "
    "checks its own work, see docs/jobs.md",
    Status.KILLED: "see why its process ended: its memory, its platform, a SIGKILL",
}


class JobLines:
    """Writes the lines, each failure that repeats at most once a minute."""

    def __init__(self, lines: LineWriter) -> None:
        self._lines = lines

    def tell(self, event: JobEvent) -> None:
        """Write the event's line."""
        match event:
            case RunBegan():
                self._lines.write("debug", "run_began", **_run(event))
            case RunEnded():
                self._ended(event)
            case RunFault():
                self._fault(event)
            case RunDeaf():
                self._lines.write(
                    "warning",
                    "run_deaf",
                    job=event.job,
                    worker=event.worker,
                    status=event.status.value,
                    consequence="until it ends, no other run of the job begins in this process; others may begin one",
                    remedy="see that the job does not catch CancelledError, nor wait in a finally",
                )
            case RunSkipped():
                self._lines.write(
                    "warning",
                    "worker_already_running",
                    **_run(event),
                    consequence="this slot is left out, and not made up for; the run that is at work goes on",
                    remedy="where it is frequent, give the job a longer interval or less to do",
                )
            case RunUnrecorded():
                self._lines.write(
                    "warning",
                    "run_unrecorded",
                    job=event.job,
                    worker=event.worker,
                    **error_fields(event.error),
                    consequence="relay runs does not show this run as it was; the job itself goes on",
                    remedy="none is needed when the database comes back; else see that the role may write relay_runs",
                )
            case _:
                assert_never(event)

    def _ended(self, event: RunEnded) -> None:
        error, status = event.error, event.status
        level = "warning" if status is Status.DONE and event.errors else _LEVELS.get(status, "info")
        consequence, remedy = _CONSEQUENCES.get(status), _REMEDIES.get(status)
        if status is Status.DONE and event.errors:
            consequence = "it went on after each of its errors, which the lines run_fault name"
        elif status is Status.DONE:
            self._lines.repeats.settle(_FAULT, event.job)
        self._lines.write(
            level,
            "run_ended",
            **_run(event),
            status=status.value,
            counters=dict(event.counters),
            errors=event.errors,
            seconds=round(event.seconds, 3),
            code=None if error is None else code(error),
            error=None if error is None else error_fields(error)["error"],
            raised_at=[] if error is None else _raised_at(error),
            consequence=consequence,
            remedy=None if remedy is None else remedy.format(job=event.job),
        )

    def _fault(self, event: RunFault) -> None:
        advice = self._lines.repeats.failed(_FAULT, event.job, (event.what, code(event.error)))
        match advice:
            case Write():
                level, faults = "warning", 1
            case Hold():
                level, faults = "debug", 1
            case Summary():
                level, faults = "warning", advice.failures
            case _:
                assert_never(advice)
        self._lines.write(
            level,
            _FAULT,
            job=event.job,
            worker=event.worker,
            what=redacted(event.what),
            **error_fields(event.error),
            raised_at=_raised_at(event.error),
            faults=faults,
            consequence="the run goes on, and counts it in errors",
        )


def _raised_at(error: BaseException) -> list[str]:
    """The place, from the job's own line on: how it was called is ours to know."""
    places = origin(error)
    theirs = (number for number, place in enumerate(places) if not place.startswith(_OURS))
    return places[next(theirs, 0) :]


def _run(event: RunBegan | RunEnded | RunSkipped) -> dict[str, str]:
    return {"job": event.job, "slot": _moment(event.slot), "worker": event.worker}


def _moment(slot: datetime) -> str:
    return slot.astimezone(UTC).isoformat().replace("+00:00", "Z")
