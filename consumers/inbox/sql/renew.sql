-- A lease is renewed by whoever has its token; one that a transaction is ending is passed over, and is not lost by that.
with asked as materialized (
    select *
      from unnest(%(ids)s::bigint[], %(tokens)s::uuid[]) with ordinality as asked(id, token, place)
), free as materialized (
    select lease.delivery_id, asked.place
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
    returning free.place
)
select place, 'renewed' from renewed
union all
select place,
       case when exists (select from inbox_leases where delivery_id = asked.id and token = asked.token) then 'held'
            else 'lost' end
  from asked
 where place not in (select place from renewed)
