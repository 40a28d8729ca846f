"""Looking into an inbox from outside, as somebody with psql would."""

from typing import Any

import psycopg
from psycopg.rows import dict_row


def rows(database: str) -> list[dict[str, Any]]:
    """All deliveries, in the order of their ids."""
    with psycopg.connect(database, row_factory=dict_row) as connection:
        return connection.execute("select * from inbox_deliveries order by id").fetchall()


def row(database: str, event_id: object) -> dict[str, Any]:
    """The delivery of an event."""
    (found,) = [each for each in rows(database) if each["event_id"] == event_id]
    return found


def history(database: str, event_id: object) -> list[str]:
    """What happened to the delivery of an event, in order."""
    with psycopg.connect(database) as connection:
        found = connection.execute(
            "select what from inbox_history join inbox_deliveries d on d.id = delivery_id where event_id = %s "
            "order by inbox_history.id",
            [event_id],
        )
        return [what for (what,) in found]


def leases(database: str) -> list[dict[str, Any]]:
    """All leases."""
    with psycopg.connect(database, row_factory=dict_row) as connection:
        return connection.execute("select * from inbox_leases order by delivery_id").fetchall()
