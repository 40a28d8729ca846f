-- Only rows that this transaction has locked are marked, and each of them once.
update outbox_events as event
   set published_at = clock_timestamp(), message_id = accepted.message_id
  from unnest(%(ids)s::bigint[], %(message_ids)s::text[]) as accepted (id, message_id)
 where event.id = accepted.id and event.published_at is null and event.failed_at is null
