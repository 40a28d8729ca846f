"""An outbox of the size at which bad plans show, filled faster than one row after the other."""

from typing import Any

import psycopg

PUBLISHED, FAILED, SCHEDULED, BLOCKED = 1_000_000, 100_000, 100_000, 500_000
# Pending rows behind all that, as few as a quiet day has.
FRESH, DUE, KEYS = 2_000, 2_000, 2_000

_INDEXES = """
select indexname, indexdef from pg_indexes
 where schemaname = 'public' and tablename = 'outbox_events' and indexname <> 'outbox_events_pkey'
"""
_FILL = """
insert into outbox_events (event_id, event_type, aggregate_type, aggregate_id, ordering_key, payload, available_at,
                           published_at, message_id, failed_at, failure_reason, blocks_key, attempt_count,
                           last_error_code)
select id, 'order.paid', 'order', n::text,
       case state when 'blocked' then 'blocked' when 'head' then 'blocked'
                  when 'keyed' then 'key-' || n
                  when 'published' then case when n %% 10 = 0 then 'old-' || n %% 1000 end end,
       jsonb_build_object('event_id', id, 'event_type', 'order.paid', 'version', 1, 'occurred_at', now(),
                          'actor', null, 'data', n),
       case state when 'scheduled' then now() + interval '1 day' + n * interval '1 second'
                  when 'due' then now() - interval '1 minute' else '-infinity' end,
       case state when 'published' then now() end, case state when 'published' then 'm' end,
       case when state in ('failed', 'head') then now() end,
       case when state in ('failed', 'head') then 'max_attempts' end,
       state = 'head', case when state in ('failed', 'head') then 25 else 0 end,
       case when state in ('failed', 'head') then 'INTERNAL' end
  from generate_series(1, %(rows)s) as n, (select %(state)s::text as state) as of,
       lateral (select (lpad(to_hex(%(kind)s::integer), 8, '0') || lpad(to_hex(n), 24, '0'))::uuid as id) as identity
"""


def fill(connection: psycopg.Connection[Any]) -> None:
    """Fill an empty outbox; no statistics are gathered, as after a burst."""
    connection.execute("alter table outbox_events set (autovacuum_enabled = false)")
    connection.execute("alter table outbox_events disable trigger user")
    indexes = connection.execute(_INDEXES).fetchall()
    for name, _ in indexes:
        connection.execute(f"drop index {name}".encode())
    sizes = {
        "published": PUBLISHED,
        "failed": FAILED,
        "scheduled": SCHEDULED,
        "due": DUE,
        "head": 1,
        "blocked": BLOCKED - 1,
        "keyed": KEYS,
        "fresh": FRESH,
    }
    for kind, (state, rows) in enumerate(sizes.items(), 1):
        connection.execute(_FILL, {"rows": rows, "state": state, "kind": kind})
    for _, definition in indexes:
        connection.execute(definition.encode())
    connection.execute("alter table outbox_events enable trigger user")
    connection.commit()
