-- Failed rows in the order in which they failed, each on one page only: a row that fails anew comes after all of them.
-- Rows that were discarded are passed over by the index, unless they are asked for.
select * from (
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
  from outbox_events
 where failed_at is not null
   and (%(discarded)s::boolean or failure_reason <> 'discarded')
   and (%(reason)s::text is null or failure_reason = %(reason)s)
   and (failed_at, id) > (%(after_time)s::timestamptz, %(after_id)s::bigint)
   and (%(since)s::timestamptz is null or failed_at >= %(since)s)
   and (%(until)s::timestamptz is null or failed_at <= %(until)s)
   and (%(type)s::text is null or event_type = %(type)s)
   and (%(aggregate_type)s::text is null or aggregate_type = %(aggregate_type)s)
   and (%(aggregate_id)s::text is null or aggregate_id = %(aggregate_id)s)
   and (%(ordering_key)s::text is null or ordering_key = %(ordering_key)s)
   and (%(code)s::text is null or last_error_code = %(code)s)
 order by outbox_events.failed_at, id
 offset 0) as failed
 where %(topic)s::text is null or topic = %(topic)s
 limit %(rows)s
