"""What a command says of an error that ended it: what the user's own hook leaves of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from relay.kernel.command import complain
from relay.kernel.failure import trace
from relay.kernel.line_redaction import WITHHOLDING, Redaction

_Settings = TypeVar("_Settings")


@dataclass(frozen=True, slots=True)
class Complaints(Generic[_Settings]):
    """Those of one program.

    `ours` are the errors in which we speak of a call or a setting; `load` reads the settings, of which `hook` makes the
    user's own, and either may raise one of them.
    """

    program: str
    ours: tuple[type[BaseException], ...]
    load: Callable[[], _Settings]
    hook: Callable[[_Settings], Redaction]

    def said(self, error: BaseException, text: str) -> str:
        """The text of an error, line by line, as it may be shown; of what we say of a call or a setting, all of it."""
        if isinstance(error, self.ours) and error.__cause__ is None:
            return text
        return self._redaction().lines(error, text)

    def unforeseen(self, error: BaseException) -> str | None:
        """What to say of an error that nobody foresaw; None without a hook, when Python's own traceback will do."""
        redaction = self._redaction()
        return redaction.lines(error, trace(error)) if redaction.asks else None

    def _redaction(self) -> Redaction:
        try:
            settings = self.load()
        except self.ours:
            return Redaction()  # nothing was reached with such settings that could have said anything
        try:
            return self.hook(settings)
        except self.ours as fault:
            complain(self.program, f"warning: {fault}; texts are left out")
            return WITHHOLDING
