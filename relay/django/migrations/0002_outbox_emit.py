"""Version 2 of the outbox's schema."""

from django.db import migrations

from relay.django.operations import OutboxVersion


class Migration(migrations.Migration):
    """Takes the step of the same name."""

    dependencies = (("outbox", "0001_outbox_events"),)
    operations = (OutboxVersion(2),)
