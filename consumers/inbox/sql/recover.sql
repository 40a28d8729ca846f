-- What an owner left behind is anybody's again, once: its lease is over, and its token counts no longer.
-- It pays for the crash only if it ran alone; beside others nobody knows whose fault it was.
with expired as materialized (
    select delivery_id, token, alone
      from inbox_leases
     where consumer = %(consumer)s and expires_at < statement_timestamp() + make_interval(secs => %(skew)s)
     order by expires_at
     limit %(most)s
       for update skip locked
), mine as materialized (
    select held.id, expired.alone
      from expired
     cross join lateral (
           select id
             from inbox_deliveries
            where id = expired.delivery_id and token = expired.token and state = 'processing'
              for update skip locked
           ) as held
), changed as (
    update inbox_deliveries as delivery
       set state = 'pending', token = null, suspect = true, stale_count = stale_count + 1,
           attempt_count = greatest(0, attempt_count - case when mine.alone then 0 else 1 end),
           available_at = statement_timestamp() + make_interval(secs => %(skew)s)
      from mine
     where delivery.id = mine.id
    returning delivery.id, delivery.event_id, delivery.event_type, delivery.attempt_count, delivery.locked_by, mine.alone
), freed as (
    -- Also of those that are settled, for which nobody asks any more.
    delete from inbox_leases as lease
     using expired
     where lease.delivery_id = expired.delivery_id and lease.token = expired.token
       and (lease.delivery_id in (select id from changed)
            or not exists (select from inbox_deliveries as delivery
                            where delivery.id = expired.delivery_id and delivery.token = expired.token
                              and delivery.state = 'processing'))
), told as (
    insert into inbox_history (delivery_id, what, detail)
    select id, 'requeued:stale', json_build_object('owner', locked_by, 'alone', alone)::jsonb from changed
)
select id, event_id::text, event_type, attempt_count, locked_by, alone from changed
