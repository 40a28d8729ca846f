"""The machine that all of it runs on."""

import os
from pathlib import Path

_LIMIT = Path("/sys/fs/cgroup/memory.max")  # of the container, if this is one and it has one


def memory() -> int:
    """Its bytes of memory, as many as may be used."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _LIMIT.read_text().strip() if _LIMIT.is_file() else ""
    return min(whole, int(limit)) if limit.isdecimal() else whole


def cpus() -> int:
    """How many there are to be used."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 0
