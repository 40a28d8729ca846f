-- What is told here, on one connection, is heard by whoever listens to this table on another.
select pg_notify('outbox_' || to_regclass(%(relation)s)::oid, %(token)s)
