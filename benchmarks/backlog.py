"""Events that wait in the outbox, as many and as large as a measurement asks for."""

import psycopg

_FILL = """
insert into outbox_events (event_id, event_type, aggregate_type, aggregate_id, ordering_key, payload, published_at,
                           message_id, topic)
select id, 'order.paid', 'order', n::text, case when %(keys)s > 0 then 'key-' || n %% greatest(%(keys)s, 1) end,
       jsonb_build_object('event_id', id, 'event_type', 'order.paid', 'version', 1, 'occurred_at', clock_timestamp(),
                          'actor', null, 'data', jsonb_build_object('note', repeat('x', %(size)s - 12))),
       case when %(published)s then clock_timestamp() end, case when %(published)s then n::text end,
       case when %(published)s then 'earlier' end
  from generate_series(1, %(rows)s) as n,
       lateral (select outbox_uuid7(clock_timestamp() + n * interval '1 microsecond') as id) as identity
"""


def fill(url: str, rows: int, size: int, keys: int = 0, *, published: bool = False) -> None:
    """Store events, each with so many bytes of data, in so many ordering keys; 0 is none."""
    with psycopg.connect(url, autocommit=True) as connection:
        values = {"rows": rows, "size": size, "keys": keys, "published": published}
        connection.execute(_FILL, values)


def empty(url: str) -> None:
    """Begin with an empty table; what was written for it is on disk before anybody is measured."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("truncate outbox_events")
    settle(url)


def settle(url: str) -> None:
    """Leave nothing of a fill to be written while somebody is measured."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("vacuum analyze outbox_events")
        connection.execute("checkpoint")


def pending(url: str) -> int:
    """How many events are not published."""
    with psycopg.connect(url) as connection:
        row = connection.execute("select count(*) from outbox_events where published_at is null").fetchone()
    return int(row[0]) if row else 0
