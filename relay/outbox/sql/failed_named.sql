-- Each row that is named by its id or its event_id is found once, whatever its state; one lookup a name.
select id, event_id::text, event_type, aggregate_type, aggregate_id,
       coalesce(topic,
                (select route.topic
                   from unnest(%(patterns)s::text[], %(pattern_topics)s::text[])
                        with ordinality as route (pattern, topic, place)
                  where event_type like route.pattern order by place limit 1),
                %(default_topic)s::text) as topic,
       ordering_key, blocks_key, created_at::text, failed_at::text, failure_reason,
       attempt_count, last_error_code, last_error,
       case when aggregate_id = '(forgotten)' then payload ? 'redacted' else false end as redacted
  from (select found.id as named_id
          from unnest(%(ids)s::bigint[]) as name (id)
         cross join lateral (select id from outbox_events where outbox_events.id = name.id offset 0) as found
         union
        select found.id
          from unnest(%(event_ids)s::uuid[]) as name (event_id)
         cross join lateral (
               select id from outbox_events where outbox_events.event_id = name.event_id offset 0) as found) as named
 cross join lateral (select * from outbox_events where outbox_events.id = named_id offset 0) as event
 order by id
