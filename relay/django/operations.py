"""The one operation that the app's migrations have: the outbox's schema, a version up or back."""

from typing import Any

from django.core.management.base import CommandError
from django.db import Error, router
from django.db.migrations.operations.base import Operation

from relay.django import places
from relay.outbox import script


class OutboxVersion(Operation):
    """Brings the outbox to a version from the one before, and back; a database that has it already is left as it is."""

    reversible = True
    reduces_to_sql = True

    def __init__(self, version: int) -> None:
        self.version = version

    def state_forwards(self, app_label: str, state: Any) -> None:
        """No model changes: the app has none."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:  # noqa: ARG002 -- Django's
        """Take the step, or print it for `sqlmigrate`."""
        _run(app_label, schema_editor, script.one_up(places.schema(), self.version))

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:  # noqa: ARG002 -- Django's
        """Take it back, with all later ones that the database has."""
        _run(app_label, schema_editor, script.down(places.schema(), self.version - 1))

    def describe(self) -> str:
        """What `migrate --plan` says."""
        return f"Outbox schema version {self.version}"

    @property
    def migration_name_fragment(self) -> str:
        """What a migration that has this operation would be called."""
        return f"outbox_version_{self.version}"


def _run(app_label: str, schema_editor: Any, statement: str) -> None:
    alias = schema_editor.connection.alias
    if not router.allow_migrate(alias, app_label):
        return
    if not places.is_postgres(alias):
        if places.is_kept_somewhere():
            return
        raise CommandError(
            f"the outbox lives in Postgres, and database {alias!r} is {schema_editor.connection.vendor}. "
            "Name a Postgres database in DATABASES, or keep the app out of this one by a router in DATABASE_ROUTERS "
            "whose allow_migrate answers False for the app label 'outbox'"
        )
    try:
        # Without parameters, the driver reads no sign of its own in it.
        schema_editor.execute(statement, params=None)
    except Error as error:
        said = script.complaint(error.__cause__)
        if said is None:
            raise
        raise CommandError(said) from error
