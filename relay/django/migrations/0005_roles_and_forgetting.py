"""Version 5 of the outbox's schema."""

from django.db import migrations

from relay.django.operations import OutboxVersion


class Migration(migrations.Migration):
    """Takes the step of the same name."""

    dependencies = (("outbox", "0004_wake_up"),)
    operations = (OutboxVersion(5),)
