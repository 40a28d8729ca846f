-- The rights of the role that looks, which is to be the relay's. By oid: who lacks usage sees nothing by its name.
select current_user as role,
       (select rolsuper from pg_roles where rolname = current_user) as superuser,
       has_schema_privilege(events.relnamespace, 'usage') as usage,
       has_table_privilege(events.oid, 'select') as reads_events,
       has_table_privilege(versions.oid, 'select') as reads_version,
       (select coalesce(array_agg(name), '{}') from unnest(%(columns)s::text[]) as name
         where not has_column_privilege(events.oid, name, 'update')) as not_updatable,
       row_security_active(events.oid) as row_security
  from pg_class as events
  join pg_class as versions on versions.relnamespace = events.relnamespace and versions.relname = 'outbox_migrations'
 where events.relname = 'outbox_events' and events.relnamespace = to_regnamespace(%(schema)s)
