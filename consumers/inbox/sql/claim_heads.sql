-- A key's first delivery that was found free is claimed unless somebody else had it meanwhile.
with taken as (
    select id
      from inbox_deliveries
     where id = any (%(ids)s::bigint[])
       and state = 'pending' and not suspect
       and mod(shard, %(shards)s) = %(shard)s
       for update skip locked
)
