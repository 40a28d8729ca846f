-- A row owes its message to the subscription once it was marked published before the silence in which it never came.
-- Of a redacted row it cannot be told what its message was: no digest.
-- `here` tells whether it belongs to the subscription's topic; now() is the same on every page of the cursor.
select id, event_id::text, coalesce(ordering_key, '') as ordering_key,
       case when aggregate_id = '(forgotten)' and payload ? 'redacted' then null
            else sha256(convert_to(payload::text, 'UTF8')) end as body_digest,
       coalesce(topic,
                (select route.topic
                   from unnest(%(patterns)s::text[], %(pattern_topics)s::text[])
                        with ordinality as route (pattern, topic, place)
                  where event_type like route.pattern
                  order by place limit 1),
                %(default_topic)s::text) = any(%(topics)s) as here,
       case when failure_reason = 'discarded' then 'discarded'
            when failed_at is not null then 'failed'
            when published_at is null then 'pending'
            when published_at >= now() - make_interval(secs => %(silence)s) then 'late'
            else 'published' end as state
  from outbox_events
