-- A row is claimed by one relay at a time, for as long as this transaction lives.
-- It looks above a floor. Where it does not find as many rows as it may take, it has seen the whole table as of its
-- snapshot, even if it answers with none because others hold them.
-- Rows of topics that take nothing now are left where they are, unlocked, and do not fill the limit.
-- Of the rows it locks it answers with as many as fit into the bytes; the rest is released with the transaction. They
-- are measured one by one only where all of them together do not fit: that costs as much as reading them.
with locked as materialized (
    select id, event_id, event_type, aggregate_type, aggregate_id, topic, payload, attributes, size_bytes,
           created_at, attempt_count
      from outbox_events
     where published_at is null and failed_at is null and ordering_key is null and available_at = '-infinity'
       and id > %(floor)s
       and (cardinality(%(open_topics)s::text[]) = 0
            or not coalesce(topic = any (%(open_topics)s::text[]), event_type = any (%(open_types)s::text[])))
     order by id
     limit %(rows)s
       for update skip locked
), whole as materialized (
    select coalesce(sum(size_bytes), 0) <= %(bytes)s as fits from locked
), cut as materialized (
    select max(id) as last
      from (select id, sum(size_bytes) over (order by id rows unbounded preceding) - size_bytes as bytes_before
              from locked) as measured
     where bytes_before < %(bytes)s
)
select id, event_id::text, event_type, aggregate_type, aggregate_id, topic, payload, nullif(attributes, '{}'),
       size_bytes, to_char(created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), attempt_count,
       null as ordering_key
  from locked
 where (select fits from whole) or id <= (select last from cut)
