-- Rows that Postgres would remove along with those that are moved, and that nobody would archive.
select constraint_.conname::text as name, constraint_.conrelid::regclass::text as referring
  from pg_constraint as constraint_
 where constraint_.contype = 'f' and constraint_.confdeltype = 'c' and constraint_.conparentid = 0
   and constraint_.confrelid = any(%(moved)s::bigint[]::oid[])
   and not constraint_.conrelid = any(%(moved)s::bigint[]::oid[])
 order by 1
