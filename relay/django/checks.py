"""What `manage.py check --database` says about the outbox.

Warnings, not errors: `manage.py migrate` asks as well, and would not go on to make the outbox that is missing.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from django.core.checks import Warning as Concern
from django.db import ProgrammingError, connections, transaction
from django.db.migrations.loader import MigrationLoader

from relay.django import places
from relay.outbox import script
from relay.outbox.ladder import newest


def outbox_is_behind(databases: Iterable[str] | None = None, **_: Any) -> list[Concern]:
    """Where the outbox is not at the version of this code, or Django does not know that it is."""
    return [concern for alias in databases or () if places.is_kept_in(alias) for concern in _concerns(alias)]


def _concerns(alias: str) -> Iterator[Concern]:
    where = f"The outbox in schema {places.schema()!r} of database {alias!r}"
    migrate = f"Run: python manage.py migrate outbox --database {alias}"
    try:
        version = _version(alias)
    except ProgrammingError as error:
        yield Concern(
            f"{where} cannot be looked at: {script.complaint(error.__cause__)}",
            hint="Grant this role usage on the schema and select on outbox_migrations.",
            id="outbox.W004",
        )
        return
    if version > newest():
        yield Concern(
            f"{where} is at version {version}, newer than the {newest()} of this code.",
            hint="Deploy the release of outbox-relay that migrated it, or a later one.",
            id="outbox.W003",
        )
    loader = MigrationLoader(connections[alias])
    ours = {key for key in loader.disk_migrations if key[0] == places.APP}
    if version < newest():
        # Without migrations in the project (MIGRATION_MODULES), or all of them recorded, Django would do nothing.
        waiting = ours - set(loader.applied_migrations)
        yield Concern(
            f"{where} is at version {version}, this code needs {newest()}.",
            hint=migrate if waiting else "Run: python -m relay migrate",
            id="outbox.W001",
        )
    elif missing := sorted(name for _, name in ours - set(loader.applied_migrations)):
        yield Concern(
            f"{where} is at version {version}, and Django has no record of {', '.join(missing)}.",
            hint=f"{migrate}. It finds them done.",
            id="outbox.W002",
        )


def _version(alias: str) -> int:
    table = script.version_table(places.schema())
    # A savepoint, where the check runs in a transaction: what is refused must not end that.
    with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
        cursor.execute("select to_regclass(%s) is not null", [table])
        if cursor.fetchone() != (True,):
            return 0
        cursor.execute(f"select coalesce(max(version), 0) from {table}")  # noqa: S608 -- quoted there
        return int(cursor.fetchone()[0])
