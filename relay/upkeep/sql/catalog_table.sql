-- A name leads to one table, exactly as it is written.
select relation.oid::bigint as oid,
       relation.oid::regclass::text as origin,
       relation.relkind::text as kind,
       relation.relkind = 'r' and exists (select from pg_inherits where inhparent = relation.oid) as has_heirs,
       array_remove(array[
           case when not has_schema_privilege(relation.relnamespace, 'usage') then 'usage on schema' end,
           case when not has_table_privilege(relation.oid, 'select') then 'select' end,
           case when not has_table_privilege(relation.oid, 'delete') then 'delete' end,
           case when %(held)s and not has_any_column_privilege(relation.oid, 'update') then 'update' end
       ], null) as missing,
       row_security_active(relation.oid) as has_policies,
       -- Told before the columns and cascades are: what comes in between is noticed.
       hashtextextended(
           (select string_agg(concat_ws(' ', attrelid, attnum, attname, atttypid, atttypmod), ',' order by attnum)
              from pg_attribute where attrelid = relation.oid and attnum > 0 and not attisdropped)
           || (select coalesce(string_agg(oid::text, ',' order by tgname), '')
                 from pg_trigger where tgrelid = relation.oid and tgisinternal), 0) as shape
  from pg_class as relation
  join pg_namespace as space on space.oid = relation.relnamespace
 where space.nspname = %(schema)s and relation.relname = %(name)s
   and relation.relkind not in ('i', 'I', 'S', 't', 'c')
