"""Events of a file, one JSON object a line: read a bounded part at a time, and named by their line when refused."""

import json
import math
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import IO, Any, NamedTuple

from relay.errors import ConfigurationError, InvalidEventError
from relay.event import Event

# JSON may write a character in six bytes that the database keeps in one or two; a message has 9.5 MB at most.
LINE_BYTES = 64_000_000
# One statement each.
CHUNK_EVENTS = 1_000
CHUNK_BYTES = 8_000_000
STDIN = "-"


class _KeyTwiceError(ValueError):
    """An object names a key more than once. It does not say which: a key may be data."""


class Line(NamedTuple):
    """An event and where it stands; line 0 is the command line."""

    number: int
    event: Event
    size: int = 0


def chunks(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """The lines in their order, so many at a time as one statement takes."""
    chunk: list[Line] = []
    size = 0
    for line in lines:
        chunk.append(line)
        size += line.size
        if len(chunk) == CHUNK_EVENTS or size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


@contextmanager
def opened(path: str) -> Iterator[IO[bytes]]:
    """A file to be read; `-` is stdin. What comes through a pipe is read to its end first.

    No transaction is then open for as long as some other program takes to write.
    """
    with ExitStack() as stack:
        try:
            source = _stdin() if path == STDIN else stack.enter_context(Path(path).open("rb"))
            if not source.seekable():
                kept = stack.enter_context(tempfile.TemporaryFile())
                shutil.copyfileobj(source, kept)
                kept.seek(0)
                source = kept
        except OSError as error:
            raise unreadable(path, error) from None
        yield source


def events_of(file: IO[bytes]) -> Iterator[Line]:
    """The events of a file; blank lines are nothing. Raises ConfigurationError with the number of the line."""
    number = 0
    while text := file.readline(LINE_BYTES + 1):
        number += 1
        if len(text) > LINE_BYTES:
            raise refused(number, f"has more than {LINE_BYTES} bytes")
        if text.strip():
            yield Line(number, event_of(_json_line(text, place(number)), number), len(text))


def event_of(fields: object, number: int) -> Event:
    """The event that these fields make."""
    if not isinstance(fields, dict):
        raise refused(number, f"is a JSON {type(fields).__name__}, not an object")
    try:
        return Event.model_validate(fields)
    except InvalidEventError as error:
        raise ConfigurationError(f"{place(number)}: {error}; nothing was stored") from None


def json_of(text: str, where: str) -> Any:
    """The value that a text holds. What is wrong with it is told without it."""
    try:
        return json.loads(text, parse_float=_float, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        reason = f"{error.msg} at character {error.pos + 1}"
    except _KeyTwiceError:
        reason = "an object in it has the same key twice; keep one"
    except ValueError:
        reason = "a number has more digits than can be kept; write it as a text"
    except RecursionError:
        reason = "it is nested too deep"
    # Out of the handler: the parser's own error keeps the text.
    raise ConfigurationError(f"{where} is not JSON: {reason}; nothing was stored")


def text_of(written: bytes, where: str) -> str:
    """Its characters; a byte order mark at its beginning is none of them."""
    try:
        return written.decode("utf-8-sig")
    except UnicodeDecodeError:
        pass
    # Out of the handler: the decoder's own error keeps the text.
    raise ConfigurationError(f"{where} is not UTF-8; nothing was stored")


def place(number: int) -> str:
    """What an event is called."""
    return f"line {number}" if number else "the event"


def refused(number: int, fault: str) -> ConfigurationError:
    """What is wrong with one line."""
    return ConfigurationError(f"{place(number)} {fault}; nothing was stored")


def unreadable(path: str, error: OSError) -> ConfigurationError:
    """A file that is not there, or cannot be read."""
    return ConfigurationError(f"{path} cannot be read: {error.strerror or error}; nothing was stored")


def _json_line(written: bytes, where: str) -> Any:
    return json_of(text_of(written, where), where)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object; refused where one of two values would be dropped without a word."""
    made = dict(pairs)
    if len(made) != len(pairs):
        raise _KeyTwiceError
    return made


def _float(text: str) -> float:
    """The number; refused where a float would be another one than the database could hold."""
    value = float(text)
    try:
        kept = math.isfinite(value) and Decimal(repr(value)) == Decimal(text)
    except ArithmeticError:  # an exponent that even a Decimal has no room for
        kept = False
    if not kept:
        raise ValueError
    return value


def _stdin() -> IO[bytes]:
    # Typed as always there; a process that is started with a closed stdin has none.
    stdin: Any = sys.stdin
    if stdin is None:
        raise ConfigurationError("standard input is closed; nothing was stored")
    source: IO[bytes] = stdin.buffer
    return source
