-- A table is what rows can be in; a view of the same name is none.
select c.oid::bigint as oid, c.relkind::text as kind
  from pg_class as c
  join pg_namespace as n on n.oid = c.relnamespace
 where n.nspname = %(schema)s and c.relname = %(name)s
