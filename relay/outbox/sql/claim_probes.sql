-- In an outage only these rows are touched: up to three of one topic, each claimed by one relay at a time.
-- The oldest, the next after the place of the last look, the newest; fresh rows stand before those that were put off.
-- What another relay holds is named without being locked.
with fresh as not materialized (
    select id, available_at
      from outbox_events
     where published_at is null and failed_at is null and ordering_key is null and available_at = '-infinity'
       and id > %(floor)s
       and coalesce(topic = %(topic)s, event_type = any (%(types)s::text[]))
), delayed as not materialized (
    select id, available_at
      from outbox_events
     where published_at is null and failed_at is null and ordering_key is null
       and available_at > '-infinity'
       and available_at <= statement_timestamp() + make_interval(secs => %(skew)s)
       and coalesce(topic = %(topic)s, event_type = any (%(types)s::text[]))
), next as materialized (
    select id, available_at
      from ((select * from fresh where %(after_time)s = '-infinity' and id > %(after_id)s order by id limit 1)
            union all
            (select * from delayed where (available_at, id) > (%(after_time)s::timestamptz, %(after_id)s)
              order by available_at, id limit 1)) as ahead
     order by available_at, id limit 1
), picked as materialized (
    select id, min(pick) as pick
      from ((select id, 1 as pick
               from ((select * from fresh order by id limit 1)
                     union all
                     (select * from delayed order by available_at, id limit 1)) as first
              order by available_at, id limit 1)
            union all
            select id, 2 from next
            union all
            (select id, 3
               from ((select * from fresh order by id desc limit 1)
                     union all
                     (select * from delayed order by available_at desc, id desc limit 1)) as last
              order by available_at desc, id desc limit 1)) as picks
     group by id
), locked as materialized (
    select id, event_id, event_type, aggregate_type, aggregate_id, topic, payload, attributes, size_bytes,
           created_at, attempt_count
      from outbox_events
     where id = any (array(select id from picked))
       and published_at is null and failed_at is null and ordering_key is null
       and available_at <= statement_timestamp() + make_interval(secs => %(skew)s)
       for update skip locked
)
select id, event_id::text, event_type, aggregate_type, aggregate_id, topic, payload, nullif(attributes, '{}'),
       size_bytes, to_char(created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), attempt_count,
       null as ordering_key,
       event_id is not null as held, (select available_at::text from next) as next_time, (select id from next) as next_id
  from picked
  left join locked using (id)
 order by pick
