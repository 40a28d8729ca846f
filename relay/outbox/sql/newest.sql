-- Whoever claims after this can see every row up to the greatest id that can be seen by now. It is not looked for where
-- that is of no interest: behind it every row of an open transaction is passed.
-- A table that was truncated since is in another file.
select case when %(asked)s then coalesce((select max(id) from outbox_events), 0) end as seen_to,
       pg_relation_filenode('outbox_events')::bigint as file,
       date_part('epoch', clock_timestamp() - statement_timestamp()) as seconds_before
