-- The row stays, with its place, its ids, its type, its times and where it went, and tells nothing of whom it was about.
-- What was not published is given up, so that no relay takes it and no key waits behind it.
update outbox_events
   set aggregate_id = '(forgotten)',
       ordering_key = null,
       dedup_key = null,
       attributes = '{}',
       payload = jsonb_build_object('event_id', event_id, 'event_type', event_type, 'version', payload -> 'version',
                                    'occurred_at', payload -> 'occurred_at', 'actor', null, 'data', null,
                                    'redacted', true),
       last_error = null,
       failed_at = case when published_at is null then coalesce(failed_at, clock_timestamp()) end,
       failure_reason = case when published_at is null then 'discarded' end,
       blocks_key = false
 where id = any(%(ids)s::bigint[])
