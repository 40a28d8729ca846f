-- What shows whether a topic takes anything stands behind all that was claimed of it: its newest rows, and small ones.
-- Each is claimed by one relay at a time; what is not sent is released with the transaction.
select id, event_id::text, event_type, aggregate_type, aggregate_id, topic, payload, nullif(attributes, '{}'),
       size_bytes, to_char(created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), attempt_count,
       null as ordering_key
  from outbox_events
 where published_at is null and failed_at is null and ordering_key is null and available_at = '-infinity'
   and id > %(beyond)s and size_bytes <= %(bytes)s
   and coalesce(topic = %(topic)s, event_type = any (%(types)s::text[]))
 order by id desc
 limit %(rows)s
   for update skip locked
