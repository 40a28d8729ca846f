"""What a command says of an error that ended it: what the user's own hook leaves of it."""

from relay.cli.parts import warned
from relay.errors import ConfigurationError
from relay.kernel.command import complain
from relay.kernel.failure import trace
from relay.kernel.line_redaction import WITHHOLDING, Redaction
from relay.settings import load


def said(error: BaseException, text: str) -> str:
    """The text of an error, line by line, as it may be shown. What we say of a call or a setting is shown as it is."""
    if isinstance(error, ConfigurationError) and error.__cause__ is None:
        return text
    return _redaction().lines(error, text)


def unforeseen(error: BaseException) -> str | None:
    """What to say of an error that nobody foresaw; None where there is no hook, and Python's own traceback will do."""
    redaction = _redaction()
    return redaction.lines(error, trace(error)) if redaction.asks else None


def _redaction() -> Redaction:
    try:
        settings = load()
    except ConfigurationError:
        return Redaction()  # nothing was reached with such settings that could have said anything
    try:
        return warned(settings)
    except ConfigurationError as fault:
        complain("relay", f"warning: {fault}; texts are left out")
        return WITHHOLDING
