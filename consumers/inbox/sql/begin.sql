-- Whoever claims begins at once: the attempt is charged, the lease runs, and history has it, or nothing of that.
, begun as (
    update inbox_deliveries as delivery
       set state = 'processing', token = %(token)s, locked_by = %(owner)s, attempt_count = attempt_count + 1,
           stage = null, progress = null,
           started_at = clock_timestamp(), first_started_at = coalesce(first_started_at, clock_timestamp())
      from taken
     where delivery.id = taken.id
    returning delivery.*
), leased as (
    insert into inbox_leases (delivery_id, consumer, token, expires_at, alone)
    select id, consumer, token, statement_timestamp() + make_interval(secs => %(skew)s::float8 + %(lease)s), %(alone)s
      from begun
    on conflict (delivery_id)
    do update set token = excluded.token, expires_at = excluded.expires_at, alone = excluded.alone
), told as (
    insert into inbox_history (delivery_id, what, detail)
    select id, 'processing', json_build_object('attempt', attempt_count, 'by', locked_by)::jsonb from begun
)
select id, event_type, envelope, attributes, coalesce(ordering_key, ''), coalesce(message_id, ''), recipient,
       attempt_count, defer_count,
       extract(epoch from created_at)::float8, extract(epoch from first_started_at)::float8
  from begun
 order by available_at, id
