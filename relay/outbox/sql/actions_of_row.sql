-- A row's history is whole and in the order in which it was made, whichever command made it.
select action_id::text, action, acted_at::text, acted_by, acted_as, why, failed_at::text, failure_reason,
       attempt_count, last_error_code,
       published_at::text
  from outbox_actions
 where row_id = %(id)s
 order by id
