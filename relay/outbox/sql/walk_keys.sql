-- Nothing that waits in a key stands before the first of the ids that are answered for it: no lock and no due time hides
-- a row from this look, and no row at or below the floor waits, but for those that were put back: their index has them.
-- A loose walk: one step of the index a key, whatever stands behind it. Of keys whose head is blocked, is not due, or is
-- of a topic that is not asked now, nothing further is read.
with recursive floor as materialized (
    select least(%(floor)s::bigint,
                 (select id - 1 from outbox_events
                   where published_at is null and ordering_key is not null and (failed_at is null or blocks_key)
                     and available_at > '-infinity'
                   order by id limit 1)) as id
), walk as (
    select 0 as step, %(after)s::text as ordering_key, 0::bigint as id, false as ready, 0 as rows
     union all
    select step + 1, head.ordering_key, head.id, head.ready, walk.rows + behind.rows
      from walk
     cross join lateral (
           select event.ordering_key, event.id,
                  failed_at is null
                  and available_at <= statement_timestamp() + make_interval(secs => %(skew)s)
                  and (cardinality(%(open_topics)s::text[]) = 0
                       or not coalesce(topic = any (%(open_topics)s::text[]), event_type = any (%(open_types)s::text[])))
                  and (%(topic)s::text is null or coalesce(topic = %(topic)s, event_type = any (%(types)s::text[])))
                  and not event.ordering_key = any (%(without)s::text[]) as ready
             from outbox_events as event
            where published_at is null and event.ordering_key is not null and (failed_at is null or blocks_key)
              and event.ordering_key > walk.ordering_key and event.id > (select id from floor)
            order by event.ordering_key, event.id
            limit 1) as head
     cross join lateral (
           select count(*)::integer as rows
             from (select from outbox_events as event
                    where head.ready
                      and published_at is null and event.ordering_key is not null and (failed_at is null or blocks_key)
                      and event.ordering_key = head.ordering_key and event.id >= head.id
                    order by event.id
                    limit %(share)s) as found) as behind
     where step < %(keys)s and walk.rows < %(rows)s
)
select ordering_key, rows, ids, cardinality(ids) >= room as more
  from walk
 cross join (select greatest(%(share)s, %(rows)s / nullif(count(*), 0)) as room from walk where ready) as each
 cross join lateral (
       select array(select event.id from outbox_events as event
                     where walk.ready
                       and published_at is null and event.ordering_key is not null
                       and (failed_at is null or blocks_key)
                       and event.ordering_key = walk.ordering_key and event.id >= walk.id
                     order by event.id
                     limit room) as ids
       offset 0) as waiting
 where step > 0
 order by step
