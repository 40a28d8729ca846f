"""The inbox's ladder: its steps are in `migrations/`. Imports no driver, which only a database needs."""

from relay.postgres.ladder import UPKEEP_TABLES, Ladder

INBOX = Ladder(
    name="inbox",
    package="consumers.inbox",
    tables=frozenset(
        {
            "inbox_deliveries",
            "inbox_leases",
            "inbox_history",
            "inbox_checkpoints",
            "inbox_locks",
            "inbox_subscribers",
            "inbox_migrations",
            *UPKEEP_TABLES,
        }
    ),
    lock=(0x696E6278, 0x6D696772),  # 'inbx', 'migr' in ASCII
    command="python -m consumers migrate",
    setting="INBOX_SCHEMA",
    rights=(
        "its owner gives it usage on the schema, select on inbox_migrations, and select, insert, update and delete "
        "on the other tables of the inbox"
    ),
    in_use="something of your own uses it; nothing was changed. Drop that first, and try again",
    stored="deliveries that were stored",
)
