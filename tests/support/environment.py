"""What a shell has set for other programs."""

from collections.abc import Mapping

# What the product's own settings begin with; those of libpq, of clouds, of telemetry; and the width of a terminal.
_OTHERS = (
    *("RELAY_", "CONSUMERS_", "INBOX_", "IDEMPOTENCY_", "ARCHIVE_", "WORKER_API_", "DATABASE_", "REDIS_", "PUBSUB_"),
    *("GOOGLE_", "AWS_", "OTEL_", "PROMETHEUS_", "SENTRY_", "DYNO", "PG", "COLUMNS", "LINES", "SCRATCH_DIR"),
)
# Passwords for a server that TEST_DATABASE_URL names.
_KEPT = {"PGPASSWORD", "PGPASSFILE"}


def bare(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without what is set for other programs."""
    return {name: value for name, value in environment.items() if name in _KEPT or not name.startswith(_OTHERS)}
