"""The demo, as `make demo` runs it."""

import subprocess
import sys

import pytest

from tests.support.commands import ROOT


@pytest.mark.slow("runs the demo")
def test_every_event_has_its_effect_exactly_once() -> None:
    """Through a poison row, an outage and a duplicate, the closing table has nothing wrong in it."""
    done = subprocess.run(
        [sys.executable, "-m", "examples.demo"], cwd=ROOT, capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "orders shipped exactly once" in done.stdout
    assert "WRONG" not in done.stdout
