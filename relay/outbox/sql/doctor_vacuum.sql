-- Every published row leaves dead versions in the claim's indexes: they are taken away by autovacuum or by nobody.
select current_setting('autovacuum')::boolean and current_setting('track_counts')::boolean as on_server,
       not exists (select from pg_class as c, unnest(c.reloptions) as option
                    where c.oid = 'outbox_events'::regclass
                      and option ~* '^autovacuum_enabled=(f|false|off|no|0)$') as on_table,
       coalesce(s.n_dead_tup, 0) as dead, coalesce(s.n_live_tup, 0) as live,
       extract(epoch from clock_timestamp() - greatest(s.last_vacuum, s.last_autovacuum))::float8 as seconds_since
  from (select 'outbox_events'::regclass as oid) as t
  left join pg_stat_all_tables as s on s.relid = t.oid
