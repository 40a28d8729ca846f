-- A discarded row stays failed and is kept, counts as failed no more, and no longer holds up its key.
update outbox_events as event
   set failure_reason = 'discarded', blocks_key = false
  from unnest(%(ids)s::bigint[]) as chosen (id)
 cross join lateral (
       select held.ctid as place
         from outbox_events as held
        where held.id = chosen.id and held.published_at is null and held.failed_at is not null
       offset 0) as found
 where event.ctid = found.place
