-- A lease is renewed by whoever has its token; one that a transaction is ending is passed over, and is not lost by that.
with asked as materialized (
    select * from unnest(%(ids)s::bigint[], %(tokens)s::uuid[]) as asked(id, token)
), free as materialized (
    select lease.delivery_id
      from asked
     cross join lateral (
           select delivery_id
             from inbox_leases
            where delivery_id = asked.id and token = asked.token
              for update skip locked
           ) as lease
), renewed as (
    update inbox_leases as lease
       set expires_at = statement_timestamp() + make_interval(secs => %(skew)s::float8 + %(lease)s)
      from free
     where lease.delivery_id = free.delivery_id
    returning lease.delivery_id
)
select asked.id,
       case when renewed.delivery_id is not null then 'renewed'
            when exists (select from inbox_leases where delivery_id = asked.id and token = asked.token) then 'held'
            else 'lost' end
  from asked
  left join renewed on renewed.delivery_id = asked.id
