-- A row that can never become a message leaves the claim, keeps its reason, and is not deleted.
-- Each id is looked up for itself, as in settle_published.
update outbox_events as event
   set failed_at = clock_timestamp(), failure_reason = 'non_retryable',
       attempt_count = least(attempt_count, 2147483646) + 1,
       last_error_code = refused.code, last_error = refused.error
  from unnest(%(ids)s::bigint[], %(codes)s::text[], %(errors)s::text[]) as refused (id, code, error)
 cross join lateral (
       select held.ctid as place
         from outbox_events as held
        where held.id = refused.id and held.published_at is null and held.failed_at is null
       offset 0) as found
 where event.ctid = found.place
