"""What went wrong, as one bounded line that may be logged and printed."""

from collections.abc import Iterator
from types import TracebackType

MOST_CHARACTERS = 1_024
MOST_FRAMES = 8


def sentence(error: BaseException) -> str:
    """The kind of the error and the first line of what it says; of a group, each error's.

    Databases and validators name the cause on the first line, and quote the data itself on those after it.
    """
    return "; ".join(_line(leaf) for leaf in _leaves(error))[:MOST_CHARACTERS]


def origin(error: BaseException) -> list[str]:
    """Where it was raised, as `module:line`, the innermost last; of a group, where the first error was."""
    first = next(_leaves(error))
    return list(_frames(first.__traceback__))[-MOST_FRAMES:]


def _line(error: BaseException) -> str:
    first = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _frames(step: TracebackType | None) -> Iterator[str]:
    while step is not None:
        yield f"{step.tb_frame.f_globals.get('__name__', '?')}:{step.tb_lineno}"
        step = step.tb_next
