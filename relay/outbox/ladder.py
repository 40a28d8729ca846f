"""The outbox's ladder: its steps are in `migrations/`. Imports no driver: frameworks bring one."""

from relay.postgres.ladder import UPKEEP_TABLES, Ladder

OUTBOX = Ladder(
    name="outbox",
    package="relay.outbox",
    tables=frozenset({"outbox_events", "outbox_actions", "outbox_migrations", *UPKEEP_TABLES}),
    lock=(0x6F757462, 0x6D696772),  # 'outb', 'migr' in ASCII
    command="python -m relay migrate",
    setting="RELAY_SCHEMA",
    rights="its owner gives it what it needs with: python -m relay grants",
    in_use=(
        "a table is taken over whose rows become events, or something of your own uses it; nothing was changed. "
        "Give a table back with: python -m relay adopt --table … --release"
    ),
    stored="events that were stored",
)
TABLES = OUTBOX.tables

migrations = OUTBOX.migrations
newest = OUTBOX.newest
steps = OUTBOX.steps
