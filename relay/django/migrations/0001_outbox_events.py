"""Version 1 of the outbox's schema."""

from django.db import migrations

from relay.django.operations import OutboxVersion


class Migration(migrations.Migration):
    """Takes the step of the same name."""

    dependencies = ()
    operations = (OutboxVersion(1),)
