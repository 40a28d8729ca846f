-- Whoever claims after this can see every row up to this id that can be seen by now. A table that was truncated since is
-- in another file.
select coalesce(max(id), 0), pg_relation_filenode('outbox_events')::bigint from outbox_events
