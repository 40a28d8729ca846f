-- Who corrects a row of a sealed table drops what forbids it.
select constraint_.conname as name
  from pg_constraint as constraint_
  join pg_class as relation on relation.oid = constraint_.conrelid
  join pg_namespace as space on space.oid = relation.relnamespace
 where space.nspname = 'archive' and relation.relname = %(name)s
   and constraint_.conname = 'sealed' and constraint_.contype = 'c'
