-- A table that rows were archived of is known by its archive, or by what was exported of it.
select obj_description(c.oid, 'pg_class') as origin
  from pg_class as c
  join pg_namespace as n on n.oid = c.relnamespace
 where n.nspname = 'archive' and c.relkind = 'p' and obj_description(c.oid, 'pg_class') is not null
 union
select origin from archive_exports
 order by origin
