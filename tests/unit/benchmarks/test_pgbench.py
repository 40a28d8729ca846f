"""The relay's own statements are run by pgbench."""

import re

from benchmarks import pgbench
from benchmarks.google import heap_mb


def test_every_parameter_is_filled_in() -> None:
    """A statement that gets a new one needs a value for it here."""
    script = pgbench.script()

    assert "%(" not in script
    assert "for update skip locked" in script
    assert "set published_at = clock_timestamp()" in script
    assert re.findall(r"^(?:begin|commit|\\set floor :id)", script, re.MULTILINE) == [
        "begin",
        "commit",
        r"\set floor :id",
    ]


def test_the_emulator_leaves_memory_to_others() -> None:
    """A third is the most that it takes, and 8 GB are enough."""
    assert [heap_mb(gigabytes * 2**30) for gigabytes in (6, 24, 64)] == [2_048, 8_192, 8_192]
