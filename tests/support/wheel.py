"""The distribution, as it is built for those who install it."""

import subprocess
import sys
from pathlib import Path

from tests.support.commands import ROOT


def built_wheel(folder: Path) -> Path:
    """The wheel of this checkout, built into a folder."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=60,
    )
    (wheel,) = folder.glob("*.whl")
    return wheel
