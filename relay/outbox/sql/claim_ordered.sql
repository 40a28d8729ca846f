-- Of each key a beginning is claimed, as its rows are once they are locked: it ends before the first that somebody else
-- holds, that is put off, or that has failed and blocks its key. What is published or given up by now is passed over.
-- Rows are locked by their ids alone. Of those that may be sent it answers with as many as fit into the bytes; the rest
-- is released with the transaction. Whoever moves rows inside of the database asks for none of what they carry.
with locked as materialized (
    select place, wanted.key_place, event.*
      from unnest(%(ids)s::bigint[], %(key_places)s::integer[]) with ordinality as wanted (id, key_place, place)
      left join lateral (
           select id, event_id, event_type, aggregate_type, aggregate_id, topic, payload, attributes, size_bytes,
                  created_at, attempt_count, ordering_key,
                  published_at is not null or (failed_at is not null and not blocks_key) as out,
                  failed_at is null
                  and available_at <= statement_timestamp() + make_interval(secs => %(skew)s) as due
             from outbox_events
            where outbox_events.id = wanted.id
              for update skip locked) as event on true
), reached as materialized (
    select *, sum(case when out then 0 else size_bytes end) over (order by place) as bytes
      from (select *, bool_and(coalesce(out or due, false)) over (partition by key_place order by place) as reached
              from locked) as judged
     where reached
)
select id, event_id::text, event_type, aggregate_type, aggregate_id, topic,
       case when taken and %(carries)s then payload end, case when %(carries)s then nullif(attributes, '{}') end,
       size_bytes, to_char(created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), attempt_count,
       ordering_key, case when taken then 'taken' when out then 'out' else 'cut' end as standing
  from (select *, not out and bytes - size_bytes < %(bytes)s as taken from reached) as bounded
 order by place
