-- The one statement that reads a payload for people.
select jsonb_pretty(payload) as payload, attributes::text as attributes, ordering_key, dedup_key,
       nullif(available_at, '-infinity')::text as available_at, published_at::text, message_id, size_bytes, blocks_key
  from outbox_events
 where id = %(id)s
