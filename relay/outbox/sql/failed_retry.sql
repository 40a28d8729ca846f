-- A failed row is pending again, with all its attempts; what it failed of stays readable until it fails anew.
-- It is due at once, and its time says that it was put back: claims find it whatever stands above it.
update outbox_events as event
   set failed_at = null, failure_reason = null, blocks_key = false, attempt_count = 0,
       available_at = clock_timestamp()
  from unnest(%(ids)s::bigint[]) as chosen (id)
 cross join lateral (
       select held.ctid as place
         from outbox_events as held
        where held.id = chosen.id and held.published_at is null and held.failed_at is not null
       offset 0) as found
 where event.ctid = found.place
