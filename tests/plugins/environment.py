"""Takes from the environment what a shell has set for other programs: it neither fails a test, nor is it reached."""

import os

import pytest

from tests.support.environment import bare

_HERE = "localhost,127.0.0.1,::1"


@pytest.hookimpl(tryfirst=True)
def pytest_configure() -> None:
    """Take it; and have no test ask a proxy for a server of this machine."""
    for name in os.environ.keys() - bare(os.environ).keys():
        del os.environ[name]
    for name in ("no_proxy", "NO_PROXY"):
        os.environ[name] = ",".join(filter(None, [os.environ.get(name), _HERE]))
