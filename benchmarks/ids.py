"""Ids of events, as the relay's `emit` makes them."""

import os
import time
from uuid import UUID


def time_ordered() -> UUID:
    """Version 7: a random one would cost whoever stores it more."""
    moment = time.time_ns() // 1_000_000
    rest = int.from_bytes(os.urandom(10), "big")
    return UUID(int=moment << 80 | 0x7 << 76 | (rest >> 68) << 64 | 0b10 << 62 | rest & (1 << 62) - 1)
