-- No row is read: these are Postgres's own counters, at the cost of rates that trail and count what was rolled back.
-- Two looks need a transaction each, for within one the counters stand still.
select pg_stat_get_tuples_inserted(to_regclass('outbox_events')) as inserted,
       pg_stat_get_tuples_updated(to_regclass('outbox_events')) as updated,
       extract(epoch from clock_timestamp())::float8 as at,
       has_table_privilege('outbox_actions', 'select') as may_read_actions
