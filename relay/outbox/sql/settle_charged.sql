-- Only the row at fault pays: with a reason it leaves the claim, and its key waits behind it or does not, as is decided
-- here once for every relay; without one it is put off, and its key with it. It is never deleted.
-- Rows are looked up and counted as in settle_published.
with marked as (
    update outbox_events as event
       set attempt_count = least(attempt_count, 2147483646) + charged.attempts,
           last_error_code = charged.code, last_error = charged.error,
           failed_at = case when charged.reason is not null then clock_timestamp() end,
           failure_reason = charged.reason,
           blocks_key = charged.reason is not null and ordering_key is not null and charged.blocks,
           available_at = case when charged.reason is not null then available_at
                               else clock_timestamp() + make_interval(secs => %(skew)s + charged.delay) end
      from unnest(%(ids)s::bigint[], %(attempts)s::integer[], %(codes)s::text[], %(errors)s::text[],
                  %(reasons)s::text[], %(blocks)s::boolean[], %(delays)s::float8[])
           as charged (id, attempts, code, error, reason, blocks, delay)
     where event.id between charged.id and charged.id and event.published_at is null and event.failed_at is null
    returning 1
)
select case when found = expected then found
            else format('settle_charged marked %%s of %%s rows', found, expected)::bigint end
  from (select count(*) as found, %(expected)s::bigint as expected from marked) as counted
