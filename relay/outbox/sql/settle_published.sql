-- Only rows that this transaction has locked are marked, and each of them once.
update outbox_events as event
   set published_at = clock_timestamp(), message_id = accepted.message_id, topic = accepted.topic
  from unnest(%(ids)s::bigint[], %(message_ids)s::text[], %(topics)s::text[]) as accepted (id, message_id, topic)
 where event.id = accepted.id and event.published_at is null and event.failed_at is null
