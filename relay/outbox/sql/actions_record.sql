-- What is about to be done to rows that this transaction has locked, with the state that it ends.
insert into outbox_actions (action_id, action, acted_by, why, row_id, event_id, event_type,
                            failed_at, failure_reason, attempt_count, last_error_code)
select %(action_id)s::uuid, %(action)s, %(by)s, %(why)s::text, found.*
  from unnest(%(ids)s::bigint[]) as chosen (id)
 cross join lateral (
       select held.id, held.event_id, held.event_type, held.failed_at, held.failure_reason, held.attempt_count,
              held.last_error_code
         from outbox_events as held
        where held.id = chosen.id and held.failed_at is not null
       offset 0) as found
