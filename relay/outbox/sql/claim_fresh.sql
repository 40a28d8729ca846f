-- A row is claimed by one relay at a time, for as long as this transaction lives.
-- It looks above a floor, and tells how far it has seen: where it did not find as many rows as it may take, it has seen
-- the whole table as of its snapshot, even if it answers with none because others hold them. A table that was truncated
-- since is in another file.
-- Rows of topics that take nothing now are left where they are, unlocked, and do not fill the limit.
-- Of the rows it locks it answers with as many as fit into the bytes; the rest is released with the transaction.
with locked as materialized (
    select id, event_id, event_type, aggregate_type, aggregate_id, topic, payload, attributes, size_bytes,
           created_at, attempt_count, available_at
      from outbox_events
     where published_at is null and failed_at is null and ordering_key is null and available_at = '-infinity'
       and id > %(floor)s
       and (cardinality(%(open_topics)s::text[]) = 0
            or not coalesce(topic = any (%(open_topics)s::text[]), event_type = any (%(open_types)s::text[])))
     order by id
     limit %(rows)s
       for update skip locked
), bounded as (
    select *, sum(size_bytes) over (order by id rows unbounded preceding) - size_bytes as bytes_before from locked
), seen as materialized (
    select case when (select count(*) from locked) < %(rows)s
                then coalesce((select max(id) from outbox_events), 0) end as seen_to,
           pg_relation_filenode('outbox_events')::bigint as file
)
select id, event_id::text, event_type, aggregate_type, aggregate_id, topic,
       convert_to(payload::text, 'UTF8') as body, nullif(attributes, '{}')::text as attributes, size_bytes,
       to_char(created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as created_at, attempt_count,
       null::text as ordering_key, seen_to, file
  from seen
  left join bounded on bytes_before < %(bytes)s
 order by id
