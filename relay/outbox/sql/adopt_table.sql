-- A name means the table that it means to this role before the search_path is ours.
select relation.oid, space.nspname, relation.relname, format('%%I.%%I', space.nspname, relation.relname),
       relation.relkind::text,
       relation.relkind = 'r' and exists (select from pg_inherits where inhparent = relation.oid),
       pg_get_userbyid(relation.relowner),
       exists (select from pg_trigger where tgrelid = relation.oid and tgname = %(trigger)s and not tgisinternal)
  from pg_class as relation
  join pg_namespace as space on space.oid = relation.relnamespace
 where relation.oid = to_regclass(%(table)s)
