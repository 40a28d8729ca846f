"""Where lines go, and the lines of others: of libraries, of warnings, of what nobody caught."""

import copy
import logging
import sys
import threading
from types import TracebackType
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

from relay.kernel.failure import redacted, sentence, trace
from relay.kernel.line_redaction import Redact, Redaction

_STAMPS: tuple[Processor, ...] = (
    structlog.processors.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
)


def logger(level: str, stream: TextIO, app: str = "") -> FilteringBoundLogger:
    """Write lines to the stream, from the level on, each with `app` if given. Nothing global is touched."""
    log: FilteringBoundLogger = structlog.wrap_logger(
        structlog.PrintLogger(stream),
        processors=[*_STAMPS, *_named(app), _renderer(stream)],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
    )
    return log


def adopt_libraries(stream: TextIO, redact: Redact | None = None, app: str = "") -> None:
    """Give what libraries log by the standard library's logging, and what nobody caught, the same form and care.

    For this process. Secrets and values of rows are taken out of their texts; tracebacks show code, and no value.
    """
    log = logger("error", stream, app)
    redaction = Redaction(redact, lambda line: log.error(line["event"], **_fields(line)))
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        _Careful(
            foreign_pre_chain=_STAMPS,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _traced,
                lambda _, __, line: redaction(dict(line)),
                *_named(app),
                _renderer(stream),
            ],
        )
    )
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    logging.captureWarnings(capture=True)
    # Its warnings are about what fails while a broken connection is put away; the break itself is raised, and told.
    logging.getLogger("psycopg").setLevel(logging.ERROR)
    _adopt_what_nobody_caught()


def adopt_structlog(level: str, stream: TextIO, redact: Redact | None = None, app: str = "") -> None:
    """Give what the process's own code logs by structlog the form of our lines, unless it has chosen one before."""
    if structlog.is_configured():
        return
    log = logger("error", stream, app)
    redaction = Redaction(redact, lambda line: log.error(line["event"], **_fields(line)))
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            *_STAMPS,
            _traced,
            lambda _, __, line: redaction(dict(line)),
            *_named(app),
            _renderer(stream),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(stream),
    )


class _Careful(structlog.stdlib.ProcessorFormatter):
    """Formats a record of the standard library whose text nobody has looked at."""

    def format(self, record: logging.LogRecord) -> str:
        record = copy.copy(record)
        if isinstance(record.args, tuple):
            record.args = tuple(map(_without_its_text, record.args))
        elif isinstance(record.args, dict):
            record.args = {name: _without_its_text(value) for name, value in record.args.items()}
        record.msg = redacted(record.getMessage())
        record.args = None
        record.exc_text = record.stack_info = None
        return super().format(record)


def _without_its_text(value: object) -> object:
    return sentence(value) if isinstance(value, BaseException) else value


def _traced(_: WrappedLogger, __: str, line: EventDict) -> EventDict:
    found: Any = line.pop("exc_info", None)
    if found is True:
        found = sys.exc_info()
    error = found[1] if isinstance(found, tuple) else found
    if isinstance(error, BaseException):
        line["exception"] = trace(error)
    return line


def _adopt_what_nobody_caught() -> None:
    log = logging.getLogger("relay")

    def uncaught(kind: type[BaseException], error: BaseException, step: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            sys.__excepthook__(kind, error, step)
        else:
            log.critical("nobody caught this", exc_info=error)

    sys.excepthook = uncaught
    sys.unraisablehook = lambda found: log.error("ignored while an object went away", exc_info=found.exc_value)
    threading.excepthook = lambda found: log.error("a thread died", exc_info=found.exc_value)


def _named(app: str) -> tuple[Processor, ...]:
    """Not before the user's redaction: which relay writes a line is nobody's secret."""
    return (lambda _, __, line: {**line, "app": app},) if app else ()


def _fields(line: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in line.items() if name not in ("event", "level")}


def _renderer(stream: TextIO) -> Any:
    if stream.isatty():
        return structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    return structlog.processors.JSONRenderer()
