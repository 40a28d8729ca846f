-- Each row that is named by its id or its event_id is found once, whatever its state.
select id, event_id::text, event_type, aggregate_type, aggregate_id,
       coalesce(topic,
                (select route.topic
                   from unnest(%(patterns)s::text[], %(pattern_topics)s::text[])
                        with ordinality as route (pattern, topic, place)
                  where event_type like route.pattern order by place limit 1),
                %(default_topic)s::text) as topic,
       ordering_key is not null as ordered, created_at::text, failed_at::text, failure_reason,
       attempt_count, last_error_code, last_error
  from outbox_events
 where id in (select id from outbox_events where id = any(%(ids)s::bigint[])
              union select id from outbox_events where event_id = any(%(event_ids)s::uuid[]))
 order by id
