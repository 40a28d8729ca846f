-- Emitting stops; what was emitted stays.
drop function outbox_emit(jsonb);
drop function outbox_refuse(bigint, text);
drop function outbox_fault(jsonb);
drop function outbox_attributes_fault(jsonb);
drop function outbox_time_fault(jsonb, text);
drop function outbox_text_fault(jsonb, text, integer, boolean);
drop function outbox_uuid7(timestamptz);
