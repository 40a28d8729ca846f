"""The relay's own statements are run by pgbench."""

import re

from benchmarks import pgbench


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
