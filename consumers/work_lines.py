"""The lines about what a handler does while it works: its stages, its progress, its artifacts."""

from typing import Any, assert_never

from consumers.events import (
    CANCELLED,
    ArtifactReused,
    ArtifactUploaded,
    NoteLost,
    ProgressMade,
    ScratchLeft,
    StageEnded,
)
from relay.kernel.line_writer import LineWriter, error_fields

Work = StageEnded | ProgressMade | ArtifactUploaded | ArtifactReused | NoteLost | ScratchLeft


def write(lines: LineWriter, event: Work, about: dict[str, Any], *, events: bool) -> None:
    """Write the event's line. What goes well is told where each event is, or at debug."""
    usual = "info" if events else "debug"
    match event:
        case StageEnded(code=code):
            fields = {**about, "stage": event.stage, "seconds": round(event.seconds, 3), "code": code}
            if code and code != CANCELLED:
                lines.write("warning", "stage_failed", **fields)
            else:
                lines.write(usual, "stage_ended", **fields)
        case ProgressMade():
            lines.write("debug", "progress_made", **about, percent=round(event.percent, 2))
        case ArtifactUploaded():
            seconds = round(event.seconds, 3)
            lines.write(
                usual, "artifact_uploaded", **about, artifact=event.artifact, bytes=event.bytes, seconds=seconds
            )
        case ArtifactReused():
            lines.write(usual, "artifact_reused", **about, artifact=event.artifact, bytes=event.bytes)
        case NoteLost():
            lines.write(
                "warning",
                "note_lost",
                **about,
                note=event.note,
                **error_fields(event.error),
                consequence="the handler goes on; the history of the delivery lacks this entry",
                remedy="none is needed when the database comes back; else see that it can be written to",
            )
        case ScratchLeft():
            lines.write(
                "warning",
                "scratch_left",
                **about,
                **error_fields(event.error),
                consequence="its files take up space until a consumer starts again, a day after this process has ended",
                remedy="see who else writes to SCRATCH_DIR, and with which rights",
            )
        case _:
            assert_never(event)
