-- A table and its columns, as they were when it was described.
(select hashtextextended(string_agg(concat_ws(' ', attrelid, attnum, attname, atttypid, atttypmod), ',' order by attnum), 0)
   from pg_catalog.pg_attribute
  where attrelid = {table}::regclass and attnum > 0 and not attisdropped) = {shape}
