-- Nothing is left of the row but its record.
delete from outbox_events where id = any(%(ids)s::bigint[])
