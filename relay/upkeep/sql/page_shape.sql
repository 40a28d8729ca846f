-- A table, its columns and what refers to it, as they were when it was described. References act by triggers, which have an
-- index.
hashtextextended(
    (select string_agg(concat_ws(' ', attrelid, attnum, attname, atttypid, atttypmod), ',' order by attnum)
       from pg_catalog.pg_attribute
      where attrelid = {table}::regclass and attnum > 0 and not attisdropped)
    || (select coalesce(string_agg(oid::text, ',' order by tgname), '')
          from pg_catalog.pg_trigger
         where tgrelid = {table}::regclass and tgisinternal), 0) = {shape}
