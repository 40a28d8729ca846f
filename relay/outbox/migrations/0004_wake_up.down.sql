-- Relays poll again.
drop trigger outbox_events_wake on outbox_events;
drop function outbox_notify();
drop function outbox_wake();
