"""What says of an artifact that it is whole."""

import json
import re
from dataclasses import dataclass
from typing import Final

SUFFIX: Final = ".manifest.json"
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Whole:
    """An artifact that is there to its last byte."""

    bytes: int
    """One at least: what is empty is no artifact."""
    sha256: str


def written(whole: Whole) -> bytes:
    """The manifest."""
    return json.dumps({"bytes": whole.bytes, "sha256": whole.sha256}).encode()


def read(text: bytes) -> Whole | None:
    """What the manifest says; None where it is none, for a half of one vouches for nothing."""
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(told, dict):
        return None
    size, digest = told.get("bytes"), told.get("sha256")
    if type(size) is not int or size < 1 or not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        return None
    return Whole(size, digest)
