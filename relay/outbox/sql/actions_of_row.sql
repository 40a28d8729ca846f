-- A row's history is whole and in the order in which it was made, whichever command made it.
-- Read by its name, published_at may be missing: a database of schema version 4 has it not.
select action_id::text, action, acted_at::text, acted_by, acted_as, why, failed_at::text, failure_reason,
       attempt_count, last_error_code,
       to_jsonb(outbox_actions) ->> 'published_at' as published_at
  from outbox_actions
 where row_id = %(id)s
 order by id
