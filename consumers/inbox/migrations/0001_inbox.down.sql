drop table inbox_deliveries, inbox_leases, inbox_history, inbox_checkpoints, inbox_locks, inbox_subscribers;
drop function inbox_complete(jsonb);
drop function inbox_enqueue(jsonb);
drop function inbox_fan_out(jsonb);
drop function inbox_notify();
