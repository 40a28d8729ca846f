"""Where a project keeps its outbox: in which of its databases, and in which schema."""

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connections, router

APP = "outbox"


def schema() -> str:
    """The schema that OUTBOX_SCHEMA names; public by default."""
    name = getattr(settings, "OUTBOX_SCHEMA", "public")
    if not isinstance(name, str) or not name or "\0" in name:
        raise ImproperlyConfigured(f"OUTBOX_SCHEMA is {name!r}, which is no name of a schema")
    return name


def is_kept_in(alias: str) -> bool:
    """Whether the database has the outbox: it is one of Postgres, and no router keeps the app out of it."""
    return is_postgres(alias) and bool(router.allow_migrate(alias, APP))


def is_kept_somewhere() -> bool:
    """Whether any database of the project has it."""
    return any(is_kept_in(alias) for alias in connections)


def is_postgres(alias: str) -> bool:
    """Whether the database is one of Postgres, with or without extensions of Django's."""
    return str(connections[alias].vendor) == "postgresql"
