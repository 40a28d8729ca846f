-- Whose owner died with it, the longest due first: a plain read, for whoever claims one locks it by its id.
-- One with a key waits for its turn as any other.
select id
  from inbox_deliveries as delivery
 where consumer = %(consumer)s and state = 'pending' and suspect
   and available_at <= statement_timestamp() + make_interval(secs => %(skew)s)
   and event_type = any (%(types)s::text[])
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
 limit %(most)s
