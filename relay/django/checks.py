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

# By how much a schema may be newer than the code that works on it: a release that is taken back finds it so.
_AHEAD = 1


def outbox_is_behind(databases: Iterable[str] | None = None, **_: Any) -> list[Concern]:
    """Where the outbox is not at the version of this code, or Django does not know that it is."""
    return [concern for alias in databases or () if places.is_kept_in(alias) for concern in _concerns(alias)]


def _concerns(alias: str) -> Iterator[Concern]:
    where = f"The outbox in schema {places.schema()!r} of database {alias!r}"
    migrate = f"Run: python manage.py migrate outbox --database {alias}"
    try:
        # A savepoint, where the check runs in a transaction: what is refused must not end that.
        with transaction.atomic(using=alias):
            version, waiting = _version(alias), _waiting(alias)
    except ProgrammingError as error:
        yield Concern(
            f"{where} cannot be looked at: {script.complaint(error.__cause__) or error}",
            hint="Grant this role usage on the schema, and select on outbox_migrations and django_migrations.",
            id="outbox.W004",
        )
        return
    if version > newest() + _AHEAD:
        yield Concern(
            f"{where} is at version {version}, newer than the {newest()} of this code.",
            hint="Deploy the release of outbox-relay that migrated it, or a later one.",
            id="outbox.W003",
        )
    if version < newest():
        yield Concern(
            f"{where} is at version {version}, this code brings {newest()}.",
            # With all of them recorded, Django would do nothing.
            hint=migrate if waiting else "Run: python -m relay migrate",
            id="outbox.W001",
        )
    elif waiting:
        yield Concern(
            f"{where} is at version {version}, and Django has no record of {', '.join(waiting)}.",
            hint=f"{migrate}. It finds them done.",
            id="outbox.W002",
        )


def _version(alias: str) -> int:
    table = script.version_table(places.schema())
    with connections[alias].cursor() as cursor:
        cursor.execute("select to_regclass(%s) is not null", [table])
        if cursor.fetchone() != (True,):
            return 0
        cursor.execute(f"select coalesce(max(version), 0) from {table}")  # noqa: S608 -- quoted there
        return int(cursor.fetchone()[0])


def _waiting(alias: str) -> list[str]:
    """The app's migrations that Django has no record of; none where MIGRATION_MODULES takes them out of the project."""
    loader = MigrationLoader(connections[alias])
    return sorted(
        name for app, name in set(loader.disk_migrations) - set(loader.applied_migrations) if app == places.APP
    )
