"""Names that look like settings of a program and have no effect."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from difflib import get_close_matches

# Names that are not ours to judge: of the test suite and of the embedded stack.
_OTHERS = frozenset({"RELAY_TEST_ROOT"})


@dataclass(frozen=True, slots=True)
class Namespace:
    """Which names a program takes for its own."""

    program: str
    """Who has the settings, such as `the relay`."""
    command: str
    """What lists them."""
    prefixes: tuple[str, ...]
    reserved: frozenset[str] = frozenset()
    """Names that later releases know; here they would only look as if they worked."""

    def stray(self, found: Iterable[str], known: Collection[str]) -> list[str]:
        """A sentence for each of the names found that begins like ours and is none of those known."""
        strays = sorted(set(found) - set(known) - _OTHERS)
        return [self._sentence(name, known) for name in strays if name.startswith(self.prefixes)]

    def _sentence(self, name: str, known: Collection[str]) -> str:
        if name in self.reserved:
            return f"{name} has no effect in this release; remove it"
        prefix = next(prefix for prefix in self.prefixes if name.startswith(prefix))
        ours = [other.removeprefix(prefix) for other in known if other.startswith(prefix)]
        near = get_close_matches(name.removeprefix(prefix), ours, n=1)
        return f"{name} is no setting of {self.program} and has no effect; " + (
            f"did you mean {prefix}{near[0]}?" if near else f"`{self.command}` lists them all"
        )
