-- Nothing is locked: whether any row that was scheduled or put off is due, so that a claim asks for such rows only where
-- there are any.
select exists (
    select from outbox_events
     where published_at is null and failed_at is null and ordering_key is null
       and available_at > '-infinity'
       and available_at <= statement_timestamp() + make_interval(secs => %(skew)s)) as due
