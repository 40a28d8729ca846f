"""What went wrong, as one bounded line that may be logged, printed and stored."""

import traceback
from collections.abc import Iterator
from itertools import islice
from types import TracebackType

from relay.kernel.redaction import storable, without_data, without_secrets
from relay.kernel.wording import code_of, kind_of, words_of

MOST_CHARACTERS = 1_024
MOST_FRAMES = 8
MOST_ERRORS = 8
MOST_CAUSES = 4


def sentence(error: BaseException) -> str:
    """The kind of the error and what it says, without the data it is about and without secrets; of a group, each one's.

    Never raises, whatever the error does when it is asked. At most 1,024 characters on one line, and every one of them
    can be stored by Postgres.
    """
    told = dict.fromkeys(_line(leaf) for leaf in islice(_leaves(error), MOST_ERRORS))
    return storable("; ".join(told))[:MOST_CHARACTERS]


def told(error: BaseException) -> str:
    """What `sentence` says without the kind of the error: for the person who called and reads it right away."""
    return storable(_words(error))[:MOST_CHARACTERS] or kind_of(error)


def told_of_database(error: Exception) -> str:
    """The same of an error of psycopg's: Postgres quotes values, and functions of the database may say anything.

    What libpq says is several lines, one for each address that it tried and one with what to look at.
    """
    if getattr(getattr(error, "diag", None), "message_primary", None) is not None:
        return told(error)
    lines = [told(type(error)(line)) for line in str(error).splitlines() if line.strip()]
    return "\n".join(lines) or kind_of(error)


def code(error: BaseException) -> str:
    """A short name for the reason: a broker's code, an SQLSTATE, or else the kind; of a group, the first error's.

    Never raises, as `sentence`.
    """
    first = next(_leaves(error), error)
    try:
        return storable(code_of(first))[:100]
    except Exception:  # noqa: BLE001 -- an error may do anything when it is asked
        return storable(kind_of(first))


def redacted(text: str) -> str:
    """A text of somebody else as one bounded line without secrets, and without what servers add about their rows."""
    return storable(without_secrets(without_data(text[: 4 * MOST_CHARACTERS])))[:MOST_CHARACTERS]


def origin(error: BaseException) -> list[str]:
    """Where it was raised, as `module:line`, the innermost last; of a group, where the first error was."""
    first = next(_leaves(error), error)
    return list(_frames(first.__traceback__))[-MOST_FRAMES:]


def trace(error: BaseException) -> str:
    """The error and what caused it, each with the lines of code that it came through, and without any value."""
    parts: list[str] = []
    seen: set[int] = set()
    step: BaseException | None = error
    while step is not None and id(step) not in seen and len(parts) < MOST_CAUSES:
        seen.add(id(step))
        frames = traceback.extract_tb(step.__traceback__)[-MOST_FRAMES:]
        places = [f'  File "{frame.filename}", line {frame.lineno}, in {frame.name}' for frame in frames]
        parts.append("\n".join([*places, sentence(step)]))
        step = step.__cause__ or (None if step.__suppress_context__ else step.__context__)
    return "\n\nled to:\n\n".join(reversed(parts))


def _line(error: BaseException) -> str:
    words = _words(error)
    return f"{kind_of(error)}: {words}" if words else kind_of(error)


def _words(error: BaseException) -> str:
    try:
        return without_secrets(words_of(error))
    except Exception:  # noqa: BLE001 -- an error may do anything when it is asked
        return ""


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors of a group, and of the groups in it, however deep; of any other error, itself."""
    waiting = [error]
    while waiting:
        first = waiting.pop()
        if isinstance(first, BaseExceptionGroup):
            waiting.extend(reversed(first.exceptions))
        else:
            yield first


def _frames(step: TracebackType | None) -> Iterator[str]:
    while step is not None:
        yield f"{step.tb_frame.f_globals.get('__name__', '?')}:{step.tb_lineno}"
        step = step.tb_next
