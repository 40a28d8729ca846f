"""Looking into an inbox from outside, as somebody with psql would."""

from typing import Any

from psycopg.rows import dict_row

from tests.support.looking import asked


def rows(database: str) -> list[dict[str, Any]]:
    """All deliveries, in the order of their ids."""
    return asked(database, "select * from inbox_deliveries order by id", row_factory=dict_row)


def row(database: str, event_id: object) -> dict[str, Any]:
    """The delivery of an event."""
    (found,) = [each for each in rows(database) if each["event_id"] == event_id]
    return found


def history(database: str, event_id: object) -> list[str]:
    """What happened to the delivery of an event, in order."""
    found = asked(
        database,
        "select what from inbox_history join inbox_deliveries d on d.id = delivery_id where event_id = %s "
        "order by inbox_history.id",
        [event_id],
    )
    return [what for (what,) in found]


def leases(database: str) -> list[dict[str, Any]]:
    """All leases."""
    return asked(database, "select * from inbox_leases order by delivery_id", row_factory=dict_row)
