-- What is marked here is in the inbox of every subscriber that it is for, once, or nothing of both is.
-- Of the two schemas the session's own is the outbox's; that of the inbox is written out. Nothing that an event carries
-- leaves the database.
-- Sorted, because two that store the same events in another order deadlock. Rows are looked up and counted as the relay
-- does in settle_published; where the consumer that moves them is no subscriber any more, none is marked.
-- What a row written by hand may have is stored as well: whoever handles it finds that it is no event.
with known as materialized (
    select consumer, patterns from {inbox}.inbox_subscribers
), moved as (
    update outbox_events as event
       set published_at = clock_timestamp(), message_id = %(moved)s
      from unnest(%(ids)s::bigint[], %(shards)s::integer[]) as claimed (id, shard)
     where event.id between claimed.id and claimed.id and event.published_at is null and event.failed_at is null
       and exists (select from known where consumer = %(consumer)s)
    returning event.id, event.event_id, event.event_type, event.aggregate_type, event.aggregate_id,
              event.ordering_key, event.payload, event.attributes, event.created_at, claimed.shard
), meant as materialized (
    select event_type, array(
               select consumer
                 from known
                where exists (select from unnest(patterns) as pattern
                               where case when right(pattern, 1) = '*' then starts_with(event_type, left(pattern, -1))
                                          else event_type = pattern end)
           ) as consumers
      from unnest(%(types)s::text[]) as event_type
), stored as (
    insert into {inbox}.inbox_deliveries
           (consumer, event_id, event_type, event_version, sequence, ordering_key, shard, envelope, attributes)
    select consumer, event_id, event_type,
           case when payload ->> 'version' ~ '^[0-9]{{1,9}}$' then (payload ->> 'version')::integer else 0 end,
           id, ordering_key, shard, payload,
           case when attributes = '{{}}' then attributes
                else coalesce((select jsonb_object_agg(key, value) from jsonb_each_text(attributes)
                                where value is not null), '{{}}') end
           || jsonb_build_object(
                  'event_id', event_id, 'event_type', event_type,
                  'aggregate_type', aggregate_type, 'aggregate_id', aggregate_id,
                  'created_at', to_char(created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
                  'sequence', id::text)
      from moved
      join meant using (event_type)
     cross join unnest(meant.consumers) as consumer
     order by event_id, consumer
    on conflict (consumer, event_id, recipient) do nothing
    returning id, consumer, event_type, ordering_key
), told as (
    insert into {inbox}.inbox_history (delivery_id, what) select id, 'created' from stored
)
select consumer, event_type, min(ordering_key) as ordering_key, count(*) as events
  from stored
 group by consumer, event_type, ordering_key is null
 union all
select null, null, null,
       case when found = expected then found
            when not exists (select from known where consumer = %(consumer)s) then -1
            else format('move marked %%s of %%s rows', found, expected)::bigint end
  from (select count(*) as found, %(expected)s::bigint as expected from moved) as counted
