-- Whoever keeps old row versions alive: claims walk over them, and no vacuum takes them away.
-- Of other roles' sessions only members of pg_read_all_stats see the times.
select 'transaction' as kind,
       format('process %s (%s, %s)', pid, coalesce(usename, '?'), coalesce(nullif(application_name, ''), 'unnamed')) as name,
       extract(epoch from clock_timestamp() - xact_start)::float8 as seconds, null::integer as xids, true as active
  from pg_stat_activity
 where xact_start is not null and pid <> pg_backend_pid() and backend_type = 'client backend'
   and (backend_xmin is not null or backend_xid is not null)
 union all
select 'prepared transaction', gid, extract(epoch from clock_timestamp() - prepared)::float8, null, true
  from pg_prepared_xacts
 union all
select 'replication slot', slot_name::text, null, greatest(age(xmin), age(catalog_xmin)), active
  from pg_replication_slots
 order by seconds desc nulls last, xids desc nulls last
