-- The one statement that reads a payload for people. How many rows of its key wait behind it is counted to a limit.
select jsonb_pretty(payload) as payload, attributes::text as attributes, dedup_key,
       nullif(available_at, '-infinity')::text as available_at, published_at::text, message_id, size_bytes,
       case when blocks_key then (
           select count(*)
             from (select from outbox_events as behind
                    where behind.published_at is null and behind.ordering_key is not null
                      and (behind.failed_at is null or behind.blocks_key)
                      and behind.ordering_key = event.ordering_key and behind.id > event.id
                    limit %(most)s) as found) end as waiting_behind
  from outbox_events as event
 where id = %(id)s
