"""How `ctx.guard` ends a handler, whatever the handler is in the middle of."""

from typing import Literal


class OutdatedError(BaseException):
    """What the event tells of is no longer so: the event is skipped.

    No failure, and so no ConsumerError; no `except Exception` of a handler's keeps it from its way.
    """

    def __init__(self, code: Literal["gone", "condition", "changed"], what: str) -> None:
        self.code = code
        super().__init__(f"{code}: {what}")


def outdated(error: BaseException) -> str | None:
    """The reason where the error says that the event is outdated, and nothing besides; None for all others."""
    match error:
        case OutdatedError():
            return str(error)
        case BaseExceptionGroup(exceptions=errors):
            reasons = [outdated(each) for each in errors]
            return None if None in reasons else reasons[0]
        case _:
            return None
