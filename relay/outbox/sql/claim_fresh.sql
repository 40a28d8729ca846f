-- A row is claimed by one relay at a time, for as long as this transaction lives.
-- It looks above a floor. Where it does not find as many rows as it may take, it has seen the whole table as of its
-- snapshot, even if it answers with none because others hold them.
-- Rows of topics that take nothing now are left where they are, unlocked, and do not fill the limit.
-- A row that is not small answers without what it carries, so that all rows together are bounded in bytes, whatever stands
-- in the table. To sum up sizes here costs a seventh of all that Postgres does for an event.
select id, event_id::text, event_type, aggregate_type, aggregate_id, topic,
       case when size_bytes <= %(small)s then payload end,
       case when size_bytes <= %(small)s then nullif(attributes, '{}') end,
       size_bytes, to_char(created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), attempt_count,
       null as ordering_key
  from outbox_events
 where published_at is null and failed_at is null and ordering_key is null and available_at = '-infinity'
   and id > %(floor)s
   and (cardinality(%(open_topics)s::text[]) = 0
        or not coalesce(topic = any (%(open_topics)s::text[]), event_type = any (%(open_types)s::text[])))
 order by id
 limit %(rows)s
   for update skip locked
