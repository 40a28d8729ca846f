"""What the user's own hook may take out of a line before it is written, and what is written when the hook fails."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from relay.kernel.failure import code

# Takes a line as a dict, with its `event` and `level`, and returns the line that may be written.
Redact = Callable[[dict[str, Any]], Mapping[str, Any]]

# What cannot hold anything of the user's own: our words, the broker's codes, names of settings.
_OURS = frozenset(
    {"event", "level", "timestamp", "event_id", "code", "topic", "runner", "reason", "next", "consequence"}
    | {"consumer", "subscription", "outcome", "dedup", "operation"}
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


class Redaction:
    """The hook, made safe: what it fails on is written without any text that it might have redacted."""

    def __init__(self, hook: Redact | None, complain: Callable[[dict[str, Any]], None]) -> None:
        self._hook = hook
        self._complain = complain
        self._complained = False

    def __call__(self, line: dict[str, Any]) -> dict[str, Any]:
        """The line as it may be written; its name and its level stay."""
        if self._hook is None:
            return line
        try:
            redacted = dict(self._hook(dict(line)))
        except Exception as error:  # noqa: BLE001 -- the hook is the user's: it may raise anything
            self._tell(error)
            return {name: value for name, value in line.items() if name in _OURS or isinstance(value, int | float)}
        return redacted | {name: line[name] for name in ("event", "level") if name not in redacted}

    def _tell(self, error: Exception) -> None:
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
