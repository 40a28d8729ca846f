-- Whether there is an outbox in this schema.
select to_regclass('outbox_events') is not null
