-- What is told to be unfinished is awaited before it is told, so that its end is notified: no end is missed between two looks.
-- A row that somebody's transaction has is not waited for; it is told to be not awaited yet.
with found as materialized (
    select asked.place, delivery.*
      from unnest(%(ids)s::bigint[], %(consumers)s::text[], %(event_ids)s::uuid[]) with ordinality
        as asked(id, consumer, event_id, place)
     cross join lateral (
           select id, state, outcome, awaited, result, error_code, error, available_at
             from inbox_deliveries
            where id = asked.id
           union all
           select id, state, outcome, awaited, result, error_code, error, available_at
             from inbox_deliveries
            where consumer = asked.consumer and event_id = asked.event_id and recipient = ''
           ) as delivery
), free as materialized (
    select held.id
      from found
     cross join lateral (
           select id
             from inbox_deliveries
            where id = found.id and not awaited and state not in ('done', 'failed')
              for no key update skip locked
           ) as held
     where not found.awaited and found.state not in ('done', 'failed')
), marked as (
    update inbox_deliveries as delivery set awaited = true from free where delivery.id = free.id
)
select place::integer, id, state, coalesce(outcome, ''), result, coalesce(error_code, ''), coalesce(error, ''),
       case when state = 'pending'
            then extract(epoch from available_at - (statement_timestamp() + make_interval(secs => %(skew)s)))::float8 else 0 end
  from found
