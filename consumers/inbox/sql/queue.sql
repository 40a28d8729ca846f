-- What a consumer's inbox comes to, without a statement that grows with it: nobody counts further than to %(most)s.
-- Of keyed rows so many are looked at, of which some may be for later; who holds a lease is processing.
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
), clock as materialized (
    select statement_timestamp() + make_interval(secs => %(skew)s) as now
), ready as (
    select due.available_at
      from types
     cross join lateral (
           select available_at
             from inbox_deliveries
            where consumer = %(consumer)s and event_type = types.event_type
              and state = 'pending' and ordering_key is null and not suspect
              and available_at <= statement_timestamp() + make_interval(secs => %(skew)s)
            order by available_at
            limit %(most)s + 1
           ) as due
     limit %(most)s + 1
), suspects as (
    select available_at
      from inbox_deliveries
     where consumer = %(consumer)s and state = 'pending' and suspect and ordering_key is null
       and available_at <= statement_timestamp() + make_interval(secs => %(skew)s)
     order by available_at
     limit %(most)s + 1
), keyed as (
    select state, available_at
      from inbox_deliveries
     where consumer = %(consumer)s and ordering_key > '' and state in ('pending', 'processing')
     order by ordering_key
     limit %(most)s + 1
), counts as (
    select (select count(*) from ready) as ready,
           (select count(*) from suspects) as suspects,
           (select count(*) from keyed) as keyed,
           (select count(*) from keyed, clock where state = 'pending' and available_at <= clock.now) as keyed_due,
           least(
               (select min(available_at) from types),
               (select min(available_at) from suspects),
               (select min(available_at) from keyed where state = 'pending')
           ) as oldest
)
select ready + suspects + keyed_due,
       ready > %(most)s or suspects > %(most)s or keyed > %(most)s,
       coalesce(greatest(0, extract(epoch from clock.now - oldest)), 0)::float8,
       (select count(*) from (select from inbox_leases where consumer = %(consumer)s limit %(most)s + 1) as held),
       (select count(*)
          from (
               select from inbox_deliveries
                where consumer = %(consumer)s and state = 'sent'
                order by event_type
                limit %(most)s + 1
               ) as sent),
       (select count(*)
          from (
               select from inbox_deliveries
                where consumer = %(consumer)s and state = 'failed' and outcome <> 'discarded'
                order by id
                limit %(most)s + 1
               ) as failed)
  from counts, clock
