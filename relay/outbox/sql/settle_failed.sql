-- A row that can never become a message leaves the claim, keeps its reason, and is not deleted.
update outbox_events as event
   set failed_at = clock_timestamp(), failure_reason = 'non_retryable', attempt_count = least(attempt_count, 2147483646) + 1,
       last_error_code = refused.code, last_error = refused.error
  from unnest(%(ids)s::bigint[], %(codes)s::text[], %(errors)s::text[]) as refused (id, code, error)
 where event.id = refused.id and event.published_at is null and event.failed_at is null
