"""Writes log lines: redacted, and of failures that repeat those that are worth one."""

from collections.abc import Callable, Iterable
from typing import Any, assert_never

from structlog.typing import FilteringBoundLogger

from relay.kernel.failure import code, sentence
from relay.kernel.line_redaction import Redact, Redaction
from relay.kernel.repeats import Advice, Hold, Recovery, Repeats, Summary, Write


class LineWriter:
    """What the listeners that write lines have in common.

    A failure of kind `topic` is told as `topic_failed`, while it goes on as `topic_failing` at most once a minute, and
    in the end as `topic_recovered`; at level debug, each time. `named` has the fields that name a kind's subject.
    """

    def __init__(
        self,
        log: FilteringBoundLogger,
        redact: Redact | None,
        monotonic: Callable[[], float],
        named: Callable[[str, str], dict[str, Any]],
    ) -> None:
        self._log = log
        self._redacted = Redaction(redact, self._put)
        self._named = named
        self.repeats = Repeats(monotonic)

    def write(self, level: str, event: str, **fields: Any) -> None:
        """Write a line."""
        self._put(self._redacted({"event": event, "level": level, **fields}))

    def failed(self, kind: str, advice: Advice, **fields: Any) -> None:
        """Write what the advice says."""
        match advice:
            case Write():
                self.write("error", f"{kind}_failed", **fields)
            case Hold():
                self.write("debug", f"{kind}_failed", **fields)
            case Summary():
                over = {"failures": advice.failures, "seconds": round(advice.seconds, 3)}
                self.write("error", f"{kind}_failing", **fields, **over, recoveries=advice.recoveries)
            case _:
                assert_never(advice)

    def worked(self, kind: str, subject: str, **fields: Any) -> None:
        """It works; where that ends failures, write so."""
        recovery = self.repeats.worked(kind, subject)
        self.recovered([recovery] if recovery else [], **fields)

    def recovered(self, recoveries: Iterable[Recovery], **fields: Any) -> None:
        """Write that failures are over."""
        for over in recoveries:
            self.write(
                "info",
                f"{over.kind}_recovered",
                **self._named(over.kind, over.subject),
                **fields,
                failures=over.failures,
                seconds=round(over.seconds, 3),
                recoveries=over.recoveries,
            )

    def _put(self, line: dict[str, Any]) -> None:
        fields = {str(name): value for name, value in line.items() if name not in ("event", "level")}
        getattr(self._log, line["level"])(line["event"], **fields)


def error_fields(error: BaseException) -> dict[str, Any]:
    """What a line says of an error."""
    return {"code": code(error), "error": sentence(error)}
