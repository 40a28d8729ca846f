-- A send is asked about by one process at a time, and stays sent: whoever dies over it has it asked about again, once its
-- time is over, and nobody ever sends again for that.
with due as (
    select first.id
      from unnest(%(types)s::text[]) as wanted(event_type)
     cross join lateral (
           select id
             from inbox_deliveries
            where consumer = %(consumer)s and event_type = wanted.event_type and state = 'sent'
              and available_at <= statement_timestamp() + make_interval(secs => %(skew)s)
              and mod(shard, %(shards)s) = %(shard)s
            order by available_at, id
            limit %(most)s
              for update skip locked
           ) as first
     limit %(most)s
), taken as (
    update inbox_deliveries as delivery
       set token = %(token)s, locked_by = %(owner)s,
           available_at = statement_timestamp() + make_interval(secs => %(skew)s::float8 + %(lease)s)
      from due
     where delivery.id = due.id
    returning delivery.*
)
select id, event_id::text, event_version, recipient, coalesce(ticket, ''), attempt_count,
       extract(epoch from coalesce(sent_at, created_at))::float8,
       extract(epoch from statement_timestamp() + make_interval(secs => %(skew)s) - coalesce(sent_at, created_at))::float8,
       extract(epoch from coalesce(first_started_at, created_at))::float8
  from taken
