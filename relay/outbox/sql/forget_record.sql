-- Rows that this transaction has locked and is about to forget, with the state that it ends and nothing of whom they were
-- about. A row that was neither published nor had failed was pending, and is never published.
insert into outbox_actions (action_id, action, acted_by, why, row_id, event_id, event_type,
                            published_at, failed_at, failure_reason, attempt_count, last_error_code)
select %(action_id)s::uuid, %(action)s, %(by)s, %(why)s::text, id, event_id, event_type,
       published_at, failed_at, failure_reason, attempt_count, last_error_code
  from outbox_events
 where id = any(%(ids)s::bigint[])
