"""The version of the outbox's schema: what the database has, what this code needs, and how it gets there."""

from relay.outbox.ladder import OUTBOX, migrations, newest, steps
from relay.postgres.schema import Versions

# What is known without a database is offered here too.
__all__ = [
    "MIGRATION_LOCK",
    "migrate",
    "migrations",
    "newest",
    "plan",
    "refuse_older",
    "require",
    "steps",
    "suitable",
    "version",
]

_VERSIONS = Versions(OUTBOX)

MIGRATION_LOCK = OUTBOX.lock
migrate = _VERSIONS.migrate
plan = _VERSIONS.plan
version = _VERSIONS.version
require = _VERSIONS.require
suitable = _VERSIONS.suitable
refuse_older = _VERSIONS.refuse_older
