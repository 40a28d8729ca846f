-- Every column that holds a value, in the order of the table.
select a.attname as name, format_type(a.atttypid, a.atttypmod) as type, t.typname as type_name,
       s.nspname as type_schema, a.attnotnull as not_null, a.attgenerated <> '' as generated
  from pg_attribute as a
  join pg_type as t on t.oid = a.atttypid
  join pg_namespace as s on s.oid = t.typnamespace
 where a.attrelid = %(table)s and a.attnum > 0 and not a.attisdropped
 order by a.attnum
