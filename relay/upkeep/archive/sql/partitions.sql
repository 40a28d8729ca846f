-- A month that waits is a partition that begins with it; what it is called does not matter.
select c.relname as name, parent.relname as parent, to_date(bound.month, 'YYYY-MM') as month,
       case when c.reltuples >= 0 then c.reltuples::bigint end as estimate
  from pg_class as parent
  join pg_namespace as n on n.oid = parent.relnamespace
  join pg_inherits as i on i.inhparent = parent.oid
  join pg_class as c on c.oid = i.inhrelid
 cross join lateral (
       select substring(pg_get_expr(c.relpartbound, c.oid) from $$^FOR VALUES FROM \('(\d{4}-\d\d)-01[ ']$$) as month
     ) as bound
 where n.nspname = 'archive' and parent.relkind = 'p' and c.relkind = 'r'
   and obj_description(parent.oid, 'pg_class') = %(origin)s
   and bound.month is not null
 order by month
