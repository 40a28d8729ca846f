"""Takes from the environment what a shell has set for other programs: it neither fails a test, nor is it reached."""

import os

import pytest

# What the product's own settings begin with; those of libpq, of clouds, of telemetry; and the width of a terminal.
_OTHERS = (
    *("RELAY_", "CONSUMERS_", "INBOX_", "IDEMPOTENCY_", "ARCHIVE_", "WORKER_API_", "DATABASE_", "REDIS_", "PUBSUB_"),
    *("GOOGLE_", "AWS_", "OTEL_", "PROMETHEUS_", "SENTRY_", "DYNO", "PG", "COLUMNS", "LINES", "SCRATCH_DIR"),
)
# Passwords for a server that TEST_DATABASE_URL names.
_KEPT = {"PGPASSWORD", "PGPASSFILE"}
_HERE = "localhost,127.0.0.1,::1"


@pytest.hookimpl(tryfirst=True)
def pytest_configure() -> None:
    """Take it; and have nobody ask a proxy for a server of this machine."""
    for name in [name for name in os.environ if name.startswith(_OTHERS) and name not in _KEPT]:
        del os.environ[name]
    for name in ("no_proxy", "NO_PROXY"):
        os.environ[name] = ",".join(filter(None, [os.environ.get(name), _HERE]))
