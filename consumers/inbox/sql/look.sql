-- What waits, by type: a loose walk over the index of what is ready, the first of each type alone.
-- Of what is to run alone only what may be claimed: for anything else this process would empty itself in vain.
with recursive types as (
    (
        select event_type, available_at
          from inbox_deliveries
         where consumer = %(consumer)s and state = 'pending' and ordering_key is null and not suspect
         order by event_type, available_at
         limit 1
    )
    union all
    select next.*
      from types
     cross join lateral (
           select event_type, available_at
             from inbox_deliveries
            where consumer = %(consumer)s and event_type > types.event_type
              and state = 'pending' and ordering_key is null and not suspect
            order by event_type, available_at
            limit 1
           ) as next
)
select 'type', event_type, extract(epoch from available_at - (statement_timestamp() + make_interval(secs => %(skew)s)))::float8 from types
union all
select 'suspect', event_type,
       extract(epoch from min(available_at) - (statement_timestamp() + make_interval(secs => %(skew)s)))::float8
  from (
       select event_type, available_at
         from inbox_deliveries as delivery
        where consumer = %(consumer)s and state = 'pending' and suspect
          and mod(shard, %(shards)s) = %(shard)s
          and (
              ordering_key is null
              or id = (
                 select id
                   from inbox_deliveries as first
                  where first.consumer = delivery.consumer and first.ordering_key = delivery.ordering_key
                    and first.state in ('pending', 'processing')
                  order by first.state = 'pending', first.sequence, first.id
                  limit 1
                 )
              )
        order by available_at, id
        limit 100
       ) as first
 group by event_type
union all
select 'keyed', '', null
 where exists (
       select from inbox_deliveries
        where consumer = %(consumer)s and ordering_key > '' and state in ('pending', 'processing')
       )
