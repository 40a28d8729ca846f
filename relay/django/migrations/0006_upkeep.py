"""Version 6 of the outbox's schema."""

from django.db import migrations

from relay.django.operations import OutboxVersion


class Migration(migrations.Migration):
    """Takes the step of the same name."""

    dependencies = (("outbox", "0005_roles_and_forgetting"),)
    operations = (OutboxVersion(6),)
