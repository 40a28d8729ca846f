"""The commands in an environment that has only what a service needs to emit."""

import subprocess
import sys

import pytest

from tests.support.commands import ROOT

pytestmark = pytest.mark.slow("installs an environment")

# As if the package were not installed: what stands for it in sys.modules cannot be imported.
RUN_WITHOUT = """
import runpy, sys
sys.modules[sys.argv.pop(1)] = None
runpy.run_module("relay", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("package", ["google", "backoff", "pydantic_settings", "h11", "prometheus_client"])
def test_a_missing_package_is_named_with_the_remedy(package: str) -> None:
    """Whoever installed without the relay extra is told so, not shown a traceback."""
    done = subprocess.run(
        [sys.executable, "-c", RUN_WITHOUT, package, "migrate", "--sql"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == (f"relay: the commands need the package {package!r}; run: pip install '.[relay]' in {ROOT}\n")
