"""Deliveries in an inbox, written as no consumer would: in whatever state a test needs."""

from typing import Any
from uuid import uuid4

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

# What a row in this state has to have.
_NEEDS: dict[str, dict[str, Any]] = {
    "done": {"outcome": "ok"},
    "failed": {"outcome": "dead", "error_code": "GONE", "error": "it is gone", "attempt_count": 3},
    "sent": {"ticket": "t-1"},
}


def store(connection: psycopg.Connection[Any], state: str = "pending", **columns: Any) -> int:
    """Store a delivery, with its first line of history; answer with its id."""
    known: dict[str, Any] = {
        "consumer": "billing",
        "event_id": uuid4(),
        "event_type": "order.paid",
        "envelope": {"data": {"iban": "DE02"}},
        "state": state,
        **_NEEDS.get(state, {}),
    }
    if state == "processing":
        known |= {"token": uuid4(), "locked_by": "host:1:ab", "attempt_count": 1}
    known |= columns
    known["envelope"] = Jsonb(known["envelope"])
    if known["state"] in ("done", "failed") and "finished_at" not in known:
        known["finished_at"] = connection.execute("select clock_timestamp()").fetchone()[0]  # type: ignore[index]
    names = sql.SQL(", ").join(map(sql.Identifier, known))
    marks = sql.SQL(", ").join(map(sql.Placeholder, known))
    row = connection.execute(
        sql.SQL("insert into inbox_deliveries ({}) values ({}) returning id").format(names, marks), known
    ).fetchone()
    assert row
    if state == "processing":
        connection.execute(
            "insert into inbox_leases (delivery_id, consumer, token, expires_at) "
            "values (%s, %s, %s, now() + interval '1 minute')",
            [row[0], known["consumer"], known["token"]],
        )
    connection.execute("insert into inbox_history (delivery_id, what) values (%s, 'created')", [row[0]])
    return int(row[0])
