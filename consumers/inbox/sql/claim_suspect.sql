-- Whose owner died with it is claimed by itself: it is the caller's duty to run nothing beside it.
with taken as (
    select id
      from inbox_deliveries
     where consumer = %(consumer)s and state = 'pending' and suspect and available_at <= statement_timestamp() + make_interval(secs => %(skew)s)
       and event_type = any (%(types)s::text[])
       and mod(shard, %(shards)s) = %(shard)s
     order by available_at, id
     limit 1
       for update skip locked
)
