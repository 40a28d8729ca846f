"""The scripts that Redis runs: each one step that nothing comes between."""

import hashlib
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True, slots=True)
class Script:
    """A file of Lua, and how many keys and arguments each event adds to a call of it."""

    name: str
    keys: int
    args: int
    text: str
    sha: bytes


def _script(name: str, *, keys: int, args: int) -> Script:
    text = resources.files("idempotency").joinpath("scripts", f"{name}.lua").read_text(encoding="utf-8")
    return Script(name, keys, args, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest().encode())


MARK = _script("mark", keys=2, args=1)
CLAIM = _script("claim", keys=3, args=2)
RENEW = _script("renew", keys=1, args=2)
COMPLETE = _script("complete", keys=3, args=2)
RELEASE = _script("release", keys=2, args=3)
FORGET = _script("forget", keys=3, args=1)
DISCARD = _script("discard", keys=1, args=1)
LOCK = _script("lock", keys=1, args=1)
