-- The keys that wait behind a failed row, those with most rows waiting first: each is counted to the same depth, so that
-- a long one hides no other, and what all of them cost is bounded.
with blocked as materialized (
    select ordering_key, min(id) as id, count(*) as blocking
      from (select id, ordering_key, blocks_key from outbox_events
             where failed_at is not null and failure_reason <> 'discarded'
             limit %(most)s) as unresolved
     where blocks_key and ordering_key is not null
     group by ordering_key
     limit %(keys)s
), ranked as materialized (
    select ordering_key, id, blocking,
           (select count(*)
              from (select from outbox_events
                     where published_at is null and ordering_key is not null and (failed_at is null or blocks_key)
                       and ordering_key = blocked.ordering_key and id > blocked.id
                     limit (select %(most)s / greatest(count(*), 1) from blocked)) as found) - blocking as behind
      from blocked
     order by behind desc, id
     limit %(shown)s
)
select ranked.ordering_key, head.id, head.event_id::text, head.event_type, coalesce(head.last_error_code, '') as code,
       head.failure_reason, head.failed_at::text, least(waiting.rows - blocking + 1, depth.rows) as behind,
       waiting.rows - blocking + 1 >= depth.rows as behind_is_least
  from ranked
 cross join (select %(most)s / greatest(count(*), 1) as rows from ranked) as depth
 cross join lateral (select * from outbox_events where outbox_events.id = ranked.id offset 0) as head
 cross join lateral (
       select count(*) as rows
         from (select from outbox_events
                where published_at is null and ordering_key is not null and (failed_at is null or blocks_key)
                  and ordering_key = ranked.ordering_key and id > ranked.id
                limit depth.rows + blocking - 1) as found) as waiting
 order by behind desc, id
