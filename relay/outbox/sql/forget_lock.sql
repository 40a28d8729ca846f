-- A row is forgotten as it is now: it is locked, and it is still about whom it was when it was found. `state` is null
-- where it is not. In the order of ids, so that two operators never wait for each other in a circle.
select id,
       case when (aggregate_type, aggregate_id) in (
                     select type, id from unnest(%(types)s::text[], %(ids)s::text[]) as meant (type, id))
                 and not case when aggregate_id = '(forgotten)' then payload ? 'redacted' else false end
            then case when published_at is not null then 'published'
                      when failed_at is null then 'pending'
                      when failure_reason = 'discarded' then 'discarded'
                      else 'failed' end end as state
  from outbox_events
 where id = any(%(rows)s::bigint[])
 order by id
   for update
