-- What Postgres has counted of the table since it counts: rates come from two looks, each in its own transaction.
select pg_stat_get_tuples_inserted(to_regclass('outbox_events')) as inserted,
       pg_stat_get_tuples_updated(to_regclass('outbox_events')) as updated,
       extract(epoch from clock_timestamp())::float8 as at,
       has_table_privilege('outbox_actions', 'select') as may_read_actions
