-- Each column with the type that it is made with again elsewhere.
select attribute.attname::text as name,
       format_type(attribute.atttypid, attribute.atttypmod) as type,
       attribute.attnotnull as never_null,
       case when attribute.attcollation not in (0, kind.typcollation)
            then quote_ident(space.nspname) || '.' || quote_ident(rule.collname) end as rule
  from pg_attribute as attribute
  join pg_type as kind on kind.oid = attribute.atttypid
  left join pg_collation as rule on rule.oid = attribute.attcollation
  left join pg_namespace as space on space.oid = rule.collnamespace
 where attribute.attrelid = %(oid)s::bigint::oid and attribute.attnum > 0 and not attribute.attisdropped
 order by attribute.attnum
