"""Names that look like settings of the relay and have no effect."""

from collections.abc import Collection, Iterable
from difflib import get_close_matches

# Names that later releases know; here they would only look as if they worked.
_RESERVED = frozenset(
    [
        "RELAY_SHARD_INDEX",
        "RELAY_SHARD_COUNT",
        "RELAY_RETENTION",
    ]
)
# Names that are not ours to judge: of the test suite and of the embedded stack.
_OTHERS = frozenset({"RELAY_TEST_ROOT"})


def stray(found: Iterable[str], known: Collection[str]) -> list[str]:
    """A sentence for each of the names found that begins like ours and is none of those known."""
    strays = sorted(set(found) - set(known) - _OTHERS)
    return [_sentence(name, known) for name in strays if name.startswith("RELAY_")]


def _sentence(name: str, known: Collection[str]) -> str:
    if name in _RESERVED:
        return f"{name} has no effect in this release; remove it"
    ours = [other.removeprefix("RELAY_") for other in known if other.startswith("RELAY_")]
    near = get_close_matches(name.removeprefix("RELAY_"), ours, n=1)
    return f"{name} is no setting of the relay and has no effect; " + (
        f"did you mean RELAY_{near[0]}?" if near else "`python -m relay config` lists them all"
    )
