-- Only rows that this transaction has locked are marked, and each of them once: where there are more or fewer, the cast
-- fails, and says so, and with it the commit that travels behind.
-- Each id is looked up for itself, in whatever way the planner sees the table: `offset 0` keeps the lookup apart, and
-- what it finds stays in its place, because the row is locked.
with marked as (
    update outbox_events as event
       set published_at = clock_timestamp(), message_id = accepted.message_id, topic = accepted.topic
      from unnest(%(ids)s::bigint[], %(message_ids)s::text[], %(topics)s::text[]) as accepted (id, message_id, topic)
     cross join lateral (
           select held.ctid as place
             from outbox_events as held
            where held.id = accepted.id and held.published_at is null and held.failed_at is null
           offset 0) as found
     where event.ctid = found.place
    returning 1
)
select case when found = expected then found
            else format('settle_published marked %%s of %%s rows', found, expected)::bigint end
  from (select count(*) as found, %(expected)s::bigint as expected from marked) as counted
