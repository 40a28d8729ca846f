-- Rights are granted by those who own what they are on: whoever else tries is warned by Postgres, and nothing is granted.
select kind, name, pg_get_userbyid(owner) as owner, pg_has_role(owner, 'usage') as ours
  from (select 'table' as kind, relname::text as name, relowner as owner
          from pg_class
         where relnamespace = to_regnamespace(%(schema)s) and relname = any(%(tables)s::text[])
         union all
        select 'function', proname::text, proowner
          from pg_proc
         where pronamespace = to_regnamespace(%(schema)s) and proname = any(%(functions)s::text[])) as object
 order by kind desc, name
