-- Names that no role has, and names of roles that may still not use the schema: who owns that is asked for it.
select name, not exists (select from pg_roles where rolname = name) as missing,
       case when exists (select from pg_roles where rolname = name)
            then has_schema_privilege(name::name, %(name)s::text, 'usage') end as usage
  from unnest(%(names)s::text[]) as name
