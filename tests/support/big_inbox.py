"""An inbox of the size at which bad plans show, filled faster than one row after the other."""

from dataclasses import asdict, dataclass
from typing import Any

import psycopg

CONSUMER = "billing"
TYPES = ("order.paid", "order.sent")
TOKEN = "3f7b4b7e-0000-4000-8000-000000000000"  # noqa: S105 -- no secret: it names a claim
DONE, FAILED, BURST = 930_000, 50_000, 20_000
FINISHED = DONE + FAILED + BURST
# What is not finished, as little as a quiet day has, but for a key behind whose first row many others wait.
READY, SCHEDULED, KEYS, BLOCKED, SUSPECTS = 4_000, 20_000, 2_000, 20_000, 100
LIVE, EXPIRED = 1_000, 1_000


@dataclass(frozen=True)
class Kind:
    """Rows that are alike."""

    rows: int
    state: str = "pending"
    keys: str = ""
    due: str = "-1 hour"
    suspect: bool = False
    consumer: str = CONSUMER


KINDS = (
    Kind(DONE * 9 // 10, "done"),
    Kind(DONE // 10, "done", "old-"),
    Kind(FAILED, "failed"),
    Kind(EXPIRED + LIVE, "processing"),
    Kind(BURST, due="-1 day"),  # finished in one go, so that the indexes have what is dead
    Kind(READY),
    Kind(SCHEDULED, due="1 day"),
    Kind(KEYS, keys="key-"),
    Kind(1, "processing", "one"),
    Kind(BLOCKED - 1, keys="one"),
    Kind(SUSPECTS, suspect=True),
    Kind(20_000, consumer="shipping"),
)

_INDEXES = """
select indexname, indexdef from pg_indexes
 where schemaname = 'public' and tablename = 'inbox_deliveries' and indexname <> 'inbox_deliveries_pkey'
   and indexname <> 'inbox_deliveries_unique'
"""
_FILL = """
insert into inbox_deliveries (consumer, event_id, event_type, sequence, ordering_key, envelope, state, outcome,
                              available_at, token, locked_by, suspect, attempt_count)
select %(consumer)s, (lpad(to_hex(%(number)s::integer), 8, '0') || lpad(to_hex(n), 24, '0'))::uuid,
       (%(types)s::text[])[1 + n %% 2], n,
       case %(keys)s when '' then null when 'one' then 'blocked' else %(keys)s || n %% 2000 end, '{"data": null}',
       %(state)s, case %(state)s when 'done' then 'ok' when 'failed' then 'dead' end,
       now() + %(due)s::interval + n * interval '1 millisecond',
       case when %(state)s <> 'pending' then %(token)s::uuid end, 'host:1:a', %(suspect)s, 1
  from generate_series(1, %(rows)s) as n
"""
_FINISH = """
update inbox_deliveries set state = 'done', outcome = 'ok', token = %(token)s
 where consumer = %(consumer)s and available_at < now() - interval '2 hours' and state = 'pending'
"""
_LEASES = """
insert into inbox_leases (delivery_id, consumer, token, expires_at)
select id, consumer, token, now() + interval '1 minute' * case when row_number() over (order by id) <= %(expired)s
                                                               then -1 else 1 end
  from inbox_deliveries
 where state = 'processing'
"""


def fill(connection: psycopg.Connection[Any]) -> None:
    """Fill an empty inbox; no statistics are gathered, as after a burst, and nothing is vacuumed behind it."""
    for table in ("inbox_deliveries", "inbox_leases", "inbox_history"):
        connection.execute(f"alter table {table} set (autovacuum_enabled = false)".encode())
    indexes = connection.execute(_INDEXES).fetchall()
    for name, _ in indexes:
        connection.execute(f"drop index {name}".encode())
    for number, kind in enumerate(KINDS, 1):
        connection.execute(_FILL, {**asdict(kind), "number": number, "types": list(TYPES), "token": TOKEN})
    for _, definition in indexes:
        connection.execute(definition.encode())
    connection.execute(_LEASES, {"expired": EXPIRED})
    connection.commit()
    connection.execute(_FINISH, {"consumer": CONSUMER, "token": TOKEN})
    connection.commit()
