-- A key's first delivery that was found free is claimed unless somebody else had it, or one of its key, meanwhile.
with taken as (
    select id
      from inbox_deliveries as delivery
     where id = any (%(ids)s::bigint[])
       and state = 'pending' and not suspect
       and available_at <= statement_timestamp() + make_interval(secs => %(skew)s)
       and mod(shard, %(shards)s) = %(shard)s
       and id = (
           select id
             from inbox_deliveries as first
            where first.consumer = delivery.consumer and first.ordering_key = delivery.ordering_key
              and first.state in ('pending', 'processing')
            order by first.state = 'pending', first.sequence, first.id
            limit 1
           )
       for update skip locked
)
