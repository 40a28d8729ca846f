-- Rows that Postgres would remove along with those that are moved, and that nobody would archive: all but children by the
-- very column that they are found by. A reference to a partition, or from a row to another one of its table, counts too.
with moved as (
    select oid from unnest(%(moved)s::bigint[]::oid[]) as oid
     union
    select relid from unnest(%(moved)s::bigint[]::oid[]) as oid cross join lateral pg_partition_tree(oid)
),
child as (
    select * from unnest(%(children)s::bigint[]::oid[], %(columns)s::text[]) as child(oid, name)
)
select constraint_.conname::text as name, constraint_.conrelid::regclass::text as referring
  from pg_constraint as constraint_
 where constraint_.contype = 'f' and constraint_.confdeltype = 'c' and constraint_.conparentid = 0
   and constraint_.confrelid in (select oid from moved)
   and not exists (
           select from child
             join pg_attribute as refers
               on refers.attrelid = child.oid and refers.attname = child.name
             join pg_attribute as key
               on key.attrelid = %(parent)s::bigint::oid and key.attname = %(key)s
            where constraint_.conrelid = child.oid and constraint_.conkey = array[refers.attnum]
              and constraint_.confrelid = key.attrelid and constraint_.confkey = array[key.attnum]
              and child.oid <> key.attrelid
       )
 order by 1
