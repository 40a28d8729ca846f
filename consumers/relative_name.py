"""Names of files that cannot lead out of the directory that they are put in."""

import os
from pathlib import PurePath, PurePosixPath

from consumers.errors import UsageError


def parts_of(name: str | PurePath, asked: str) -> tuple[str, ...]:
    """The parts of the name, one at least. Raises UsageError, in which `asked` says what was called.

    What leads elsewhere is not repeated in the error: it may be anybody's path.
    """
    if fault := _fault(name):
        raise UsageError(f"{asked}: the name {fault}; name a file like frames/1.png")
    return PurePosixPath(name).parts


def _fault(name: object) -> str:
    if not isinstance(name, str | PurePath):
        return f"is a value of type {type(name).__name__}, not a text"
    text = str(name)
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return "has characters that no file name can have"
    if not text.isprintable():
        return "has control characters or line breaks"
    path = PurePosixPath(text)
    if path.is_absolute():
        return "is an absolute path"
    if ".." in path.parts:
        return "climbs out by '..'"
    return "" if path.parts else "is empty"
