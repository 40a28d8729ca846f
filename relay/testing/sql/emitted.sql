-- Whoever asks, over whatever driver and with whatever settings of the session, reads the same of each event: one text a
-- row, in the order in which they were stored. The session's search_path is somebody else's, so the table has its schema.
select cast(json_build_object(
           'sequence', id, 'event_id', event_id, 'event_type', event_type,
           'aggregate_type', aggregate_type, 'aggregate_id', aggregate_id,
           'topic', topic, 'ordering_key', ordering_key, 'dedup_key', dedup_key,
           'payload', payload, 'attributes', attributes,
           'created_at', created_at, 'available_at', nullif(available_at, '-infinity'),
           'published_at', published_at, 'message_id', message_id,
           'failed_at', failed_at, 'failure_reason', failure_reason,
           'attempt_count', attempt_count, 'error_code', last_error_code, 'error', last_error) as text)
  from {schema}.outbox_events
 order by id
