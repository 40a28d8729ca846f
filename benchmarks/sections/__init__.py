"""The parts of the benchmark, each a module with a TITLE and `measure`."""

import importlib
from typing import cast

from benchmarks.figures import Section

NAMES = (
    "drain",
    "cpu",
    "limit",
    "peers",
    "latency",
    "emit",
    "emitters",
    "growth",
    "retention",
    "memory",
    "idle",
    "keys",
    "consume",
    "inbox",
    "exports",
)


def load(name: str) -> Section:
    """A part by its name; what it needs is imported only now."""
    return cast("Section", importlib.import_module(f"{__name__}.{name}"))
