"""What the database said of an error, whichever library has told it."""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """An error of the database: its SQLSTATE, and its first sentence."""

    sqlstate: str
    message: str


def fault_of(error: BaseException) -> Fault | None:
    """Return what the database said; None where the error is not the database's.

    Django and SQLAlchemy raise errors of their own from the driver's.
    """
    for cause in _causes(error):
        sqlstate = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
        diagnostics = getattr(cause, "diag", None)
        message = getattr(cause, "message", None) if diagnostics is None else diagnostics.message_primary
        if isinstance(sqlstate, str) and isinstance(message, str):
            return Fault(sqlstate, message)
    return None


def is_unencodable(error: BaseException) -> bool:
    """Whether the driver could not write the text in the encoding of the connection."""
    return any(isinstance(cause, UnicodeEncodeError) for cause in _causes(error))


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    cause: BaseException | None = error
    # An error may be raised from itself.
    while cause is not None and cause not in seen:
        yield cause
        seen.append(cause)
        cause = cause.__cause__
