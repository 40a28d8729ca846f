-- A delivery has one owner at a time, and begins at once: it is claimed for a permit, and charged as it begins.
with taken as (
    select due.id
      from unnest(%(types)s::text[], %(rooms)s::integer[]) as wanted(event_type, room)
     cross join lateral (
           select id
             from inbox_deliveries
            where consumer = %(consumer)s and event_type = wanted.event_type
              and state = 'pending' and ordering_key is null and not suspect
              and available_at <= statement_timestamp() + make_interval(secs => %(skew)s)
              and mod(shard, %(shards)s) = %(shard)s
            order by available_at, id
            limit wanted.room
              for update skip locked
           ) as due
     limit %(most)s
)
