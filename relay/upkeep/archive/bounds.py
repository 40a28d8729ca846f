"""How large a file may become."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    """It ends before it has more rows, and with the group of rows by which it has as many bytes."""

    rows: int = 1_000_000
    bytes: int = 256 << 20
