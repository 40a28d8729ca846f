-- Each column as it can be written in a cast, and whether it may be null.
select attname, format_type(atttypid, atttypmod), attnotnull, attgenerated <> ''
  from pg_attribute
 where attrelid = %(table)s and attnum > 0 and not attisdropped
 order by attnum
