-- Whoever claims after this can see every row up to the greatest id that can be seen by now. It is not looked for where
-- that is of no interest: behind it every row of an open transaction is passed.
-- Rows with a key, and rows that are due after they were scheduled or put off, are told of if there are any that wait:
-- most outboxes have none just now, and a statement that finds none takes longer than this.
-- As for the walk over keys, rows that were put back may stand below the floor.
select case when %(newest)s then coalesce((select max(id) from outbox_events), 0) end as seen_to,
       pg_relation_filenode('outbox_events')::bigint as file,
       %(keys)s and coalesce(
           (select true from outbox_events
             where published_at is null and ordering_key is not null and (failed_at is null or blocks_key)
               and available_at > '-infinity'
             order by id
             limit 1),
           (select true from outbox_events
             where published_at is null and ordering_key is not null and (failed_at is null or blocks_key)
               and ordering_key > '' and id > %(ordered_safe)s
             order by ordering_key, id
             limit 1),
           false) as keys,
       %(due)s and coalesce(
           (select true from outbox_events
             where published_at is null and failed_at is null and ordering_key is null
               and available_at > '-infinity'
               and available_at <= statement_timestamp() + make_interval(secs => %(skew)s)
             order by available_at, id
             limit 1),
           false) as due,
       date_part('epoch', clock_timestamp() - statement_timestamp()) as seconds_before  -- the last one: of these, too
