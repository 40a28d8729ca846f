-- Emitting stops; what was emitted stays.
drop function outbox_emit(jsonb);
drop function outbox_refuse(bigint, text);
drop function outbox_fault(jsonb);
drop function outbox_attributes_fault(jsonb);
drop function outbox_is_rfc3339(text);
drop function outbox_uuid7();
