-- A row that was scheduled or put off is claimed when it is due, by one relay at a time.
-- Rows of topics that take nothing now are left where they are, unlocked, and do not fill the limit.
-- Of the rows it locks it answers with as many as fit into the bytes; the rest is released with the transaction.
-- Whoever moves rows inside of the database asks for none of what they carry.
with locked as materialized (
    select id, event_id, event_type, aggregate_type, aggregate_id, topic, payload, attributes, size_bytes,
           created_at, attempt_count, available_at
      from outbox_events
     where published_at is null and failed_at is null and ordering_key is null
       and available_at > '-infinity'
       and available_at <= statement_timestamp() + make_interval(secs => %(skew)s)
       and (cardinality(%(open_topics)s::text[]) = 0
            or not coalesce(topic = any (%(open_topics)s::text[]), event_type = any (%(open_types)s::text[])))
     order by available_at, id
     limit %(rows)s
       for update skip locked
), bounded as (
    select *, sum(size_bytes) over (order by available_at, id rows unbounded preceding) - size_bytes as bytes_before from locked
)
select id, event_id::text, event_type, aggregate_type, aggregate_id, topic,
       case when %(carries)s then payload end, case when %(carries)s then nullif(attributes, '{}') end,
       size_bytes, to_char(created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), attempt_count,
       null as ordering_key
  from bounded
 where bytes_before < %(bytes)s
 order by available_at, id
