-- Only rows that this transaction has locked are marked, and each of them once: where there are more or fewer, the cast
-- fails, and says so, and with it the commit that travels behind.
-- `between` is a way to say that they are equal of which the planner can make one thing only: a lookup for each id. For
-- the equality itself, on a table that it believes to be small, it would read the index from end to end.
with marked as (
    update outbox_events as event
       set published_at = clock_timestamp(), message_id = accepted.message_id, topic = %(topic)s
      from unnest(%(ids)s::bigint[], %(message_ids)s::text[]) as accepted (id, message_id)
     where event.id between accepted.id and accepted.id and event.published_at is null and event.failed_at is null
    returning 1
)
select case when found = expected then found
            else format('settle_published marked %%s of %%s rows', found, expected)::bigint end
  from (select count(*) as found, %(expected)s::bigint as expected from marked) as counted
