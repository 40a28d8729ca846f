-- A bounded number of the newest rows speaks for all: the cost does not grow with what has failed.
-- Rows that name no topic count for the one that the relay would send them to.
with looked_at as materialized (
    (select 'failed' as state, last_error_code, topic, event_type from outbox_events
      where failed_at is not null and failure_reason <> 'discarded'
      order by failed_at desc, id desc limit %(most)s)
    union all
    (select 'retrying', last_error_code, topic, event_type from outbox_events
      where published_at is null and failed_at is null and attempt_count > 0
      order by id desc limit %(most)s)
), routed as (
    select state, last_error_code,
           coalesce(topic,
                    (select route.topic
                       from unnest(%(patterns)s::text[], %(pattern_topics)s::text[])
                            with ordinality as route (pattern, topic, place)
                      where event_type like route.pattern order by place limit 1),
                    %(default_topic)s::text) as topic
      from looked_at
)
select state, coalesce(last_error_code, '') as code, topic, count(*) as rows
  from routed
 group by state, last_error_code, topic
 order by count(*) desc, state, code, topic
 limit %(shown)s
