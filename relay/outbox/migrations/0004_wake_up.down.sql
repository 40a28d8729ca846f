-- Relays poll again.
drop index outbox_events_put_off;
drop trigger outbox_events_truncated on outbox_events;
drop function outbox_truncated();
drop trigger outbox_events_wake on outbox_events;
drop function outbox_notify();
drop function outbox_wake();
