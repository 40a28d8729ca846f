"""What Django is told about the app."""

from django.apps import AppConfig
from django.core.checks import Tags, register

from relay.django.checks import outbox_is_behind


class OutboxConfig(AppConfig):
    """The app, by a label that does not name its package."""

    name = "relay.django"
    label = "outbox"
    verbose_name = "Outbox"

    def ready(self) -> None:
        """Have `check --database` look at the outbox too."""
        register(outbox_is_behind, Tags.database)
