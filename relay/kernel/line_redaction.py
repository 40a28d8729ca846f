"""What the user's own hook may take out of what is written, stored or shown, and what is left when the hook fails."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from relay.kernel.failure import MOST_CHARACTERS, code, sentence
from relay.kernel.redaction import storable

# Takes a line as a dict, with its `event` and `level`, and returns the line that may be written.
Redact = Callable[[dict[str, Any]], Mapping[str, Any]]

# In the place of a text that the hook took out, or failed on.
REDACTED = "(redacted)"

# What cannot hold anything of the user's own: our words, the broker's codes, names of settings.
_OURS = frozenset(
    {"event", "level", "timestamp", "event_id", "code", "topic", "runner", "reason", "next", "consequence"}
    | {"consumer", "subscription", "outcome", "dedup", "operation", "check", "job", "slot", "status"}
)


def load(path: str, setting: str) -> Redact | None:
    """The hook that `module:function` names; None for an empty path. Raises ValueError when there is none.

    `setting` is what the path was read from.
    """
    if not path:
        return None
    module, colon, name = path.partition(":")
    if not (colon and module and name):
        raise ValueError(f"{setting} is {path!r}: write it as module:function")
    try:
        hook = getattr(importlib.import_module(module), name)
    except Exception as error:  # the module is the user's: it may raise anything
        raise ValueError(
            f"{setting} is {path!r}, which cannot be imported ({code(error)}); "
            "the module must be on the PYTHONPATH of this process, and have a function of that name"
        ) from error
    if not callable(hook):
        raise ValueError(f"{setting} is {path!r}, which is not a function")  # noqa: TRY004 -- of a text
    return hook  # type: ignore[no-any-return]


class Words(NamedTuple):
    """What is said of an error: one line each, which every terminal and database takes."""

    code: str
    error: str


class Redaction:
    """The hook, made safe: what it fails on is written without any text that it might have redacted.

    `complain` gets the line that says so, once.
    """

    def __init__(self, hook: Redact | None = None, complain: Callable[[dict[str, Any]], None] = lambda _: None) -> None:
        self._hook = hook
        self._complain = complain
        self._complained = False

    @property
    def asks(self) -> bool:
        """Whether there is a hook."""
        return self._hook is not None

    def of_error(self, event: str, error: BaseException, **fields: Any) -> Words:
        """What may be said of an error elsewhere than in the log; the hook is asked as for a line of this name."""
        return self.words(event, **fields, code=code(error), error=sentence(error))

    def words(self, event: str, level: str = "error", **fields: Any) -> Words:
        """The `code` and the `error` of such a line, as they may be stored or shown."""
        if self._hook is None:
            return Words(fields["code"], fields["error"])
        left = self({"event": event, "level": level, **fields})
        return Words(_text(left.get("code")), _text(left.get("error")))

    def lines(self, error: BaseException, text: str) -> str:
        """What a command may say of the error that ended it; the hook is asked line by line."""
        lines = [line for line in text.splitlines() if line.strip()]
        return "\n".join(self.words("command_failed", code=code(error), error=line).error for line in lines)

    def fields(self, event: str, known: Mapping[str, Any], renamed: Mapping[str, str] | None = None) -> dict[str, Any]:
        """The same of all texts among some fields, which stand in the line by their names, or as `renamed` has them.

        What is no text stays as it is.
        """
        if self._hook is None:
            return dict(known)
        names = {name: (renamed or {}).get(name, name) for name in known}
        left = self({"event": event, "level": "info", **{names[name]: value for name, value in known.items()}})
        return {
            name: _shown(left.get(names[name])) if isinstance(value, str) else value for name, value in known.items()
        }

    def __call__(self, line: dict[str, Any]) -> dict[str, Any]:
        """The line as it may be written; its name and its level stay."""
        if self._hook is None:
            return line
        try:
            redacted = dict(self._hook(dict(line)))
        except (Exception, SystemExit) as error:  # noqa: BLE001 -- the hook is the user's: it may raise anything
            self._tell(error)
            return {name: value for name, value in line.items() if name in _OURS or isinstance(value, int | float)}
        return redacted | {name: line[name] for name in ("event", "level") if name not in redacted}

    def _tell(self, error: BaseException) -> None:
        if not self._complained:
            self._complained = True
            self._complain(
                {
                    "event": "redaction_failed",
                    "level": "error",
                    "code": code(error),
                    "consequence": "lines that the hook fails on are written without their free texts; "
                    "this is said once",
                }
            )


def _nothing(_: dict[str, Any]) -> Mapping[str, Any]:
    raise LookupError


# For whoever should ask a hook, and has none: every text is taken out.
WITHHOLDING = Redaction(_nothing)


def _text(left: object) -> str:
    return storable(left)[:MOST_CHARACTERS] if isinstance(left, str) else REDACTED


def _shown(left: object) -> str:
    return left if isinstance(left, str) else REDACTED
