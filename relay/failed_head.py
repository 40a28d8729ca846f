"""What becomes of an ordering key whose row failed for good: later rows of the key wait for an operator, or go on.

    RELAY_ON_FAILED_HEAD = "block, audit.*=skip, order.note=skip"

The first part may be the default, `block` or `skip`; where it is left out, rows block. The others are patterns of event
types, as RELAY_ROUTES has them, each with `block` or `skip`. The type is that of the row that failed. A pattern here
has no space and no semicolon, and is neither of the two words: each of these is a comma that is missing.
"""

import re
from dataclasses import dataclass
from typing import Self

from relay.patterns import ByType, divided, parts, pattern_fault, shown

_BLOCKS = {"block": True, "skip": False}
_WORDS = {blocks: word for word, blocks in _BLOCKS.items()}
_NO_COMMA = re.compile(r"[\s;]")


@dataclass(frozen=True, slots=True)
class FailedHead(ByType[bool]):
    """Whether a failed row blocks its key, by its event type. Built by `parse`; without anything, each does."""

    default: bool = True

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text of RELAY_ON_FAILED_HEAD. Raises ValueError with one sentence."""
        default = True
        chosen: dict[str, bool] = {}
        for place, part in enumerate(parts(text)):
            if part.lower() in _BLOCKS:
                if place:
                    raise ValueError(f"has the part {shown(part)} after its first; the default stands first, once")
                default = _BLOCKS[part.lower()]
                continue
            pattern, blocks = _choice(part)
            if pattern in chosen:
                raise ValueError(
                    f"names {shown(pattern)} twice, for {_WORDS[chosen[pattern]]} and for {_WORDS[blocks]}; keep one"
                )
            chosen[pattern] = blocks
        return cls.of(default, chosen)

    def blocks(self, event_type: str) -> bool:
        """Whether later rows of the key wait when a row of this type has failed for good."""
        return self.value_of(event_type)

    @property
    def meaning(self) -> str:
        """What each part says, the one that decides first; empty where one word is for all."""
        chosen = [f"{pattern} {_WORDS[blocks]}" for pattern, blocks in self.most_specific_first]
        return ", ".join([*chosen, f"all others {_WORDS[self.default]}"]) if chosen else ""


def _choice(part: str) -> tuple[str, bool]:
    """The pattern of one part, and whether its rows block."""
    pieces = divided(part)
    if pieces is None:
        raise ValueError(
            f"has the part {shown(part)}, which is neither block nor skip nor a type with one of them; "
            "write it like audit.*=skip"
        )
    pattern, word = pieces
    if _NO_COMMA.search(pattern):
        raise ValueError(
            f"has the part {shown(part)}, whose pattern has a space or a semicolon; "
            "put a comma between parts, like block, audit.*=skip, "
            "and write a type with a space by its beginning, like a*"
        )
    if pattern.lower() in _BLOCKS:
        raise ValueError(
            f"has the part {shown(part)}, which has {shown(pattern)} for a type; "
            "put a comma between the default and the types, like block, audit.*=skip"
        )
    if fault := pattern_fault(pattern, "write the default for all others first, as block or skip alone"):
        raise ValueError(f"has the part {shown(part)}, whose {fault}")
    if word.lower() not in _BLOCKS:
        raise ValueError(f"has the part {shown(part)}, which ends in {shown(word)}; write block or skip there")
    return pattern, _BLOCKS[word.lower()]
