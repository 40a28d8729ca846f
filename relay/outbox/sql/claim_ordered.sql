-- Rows are locked by their ids alone, and answered for as they are then: whoever finds one missing, put off or blocked
-- knows that what stands behind it in its key has to wait.
-- Of the rows it locks it answers with as many as fit into the bytes; the rest is released with the transaction.
with locked as materialized (
    select id, event_id, event_type, aggregate_type, aggregate_id, topic, payload, attributes, size_bytes,
           created_at, attempt_count, ordering_key,
           case when published_at is not null then 'out'
                when blocks_key then 'stop'
                when failed_at is not null then 'out'
                when available_at > statement_timestamp() + make_interval(secs => %(skew)s) then 'stop'
                else 'next' end as standing
      from outbox_events
     where id = any (%(ids)s::bigint[])
     order by id
       for update skip locked
), bounded as (
    select *, sum(case standing when 'next' then size_bytes else 0 end) over (order by id) - size_bytes as bytes_before
      from locked
)
select id, event_id::text, event_type, aggregate_type, aggregate_id, topic,
       case standing when 'next' then convert_to(payload::text, 'UTF8') end as body,
       nullif(attributes, '{}')::text as attributes, size_bytes,
       to_char(created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as created_at, attempt_count,
       ordering_key, standing
  from bounded
 where bytes_before < %(bytes)s
 order by id
