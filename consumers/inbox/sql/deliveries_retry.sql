-- What nobody works on, and is still as it was chosen, is pending again with all its attempts, and history has by whom.
-- In the order of ids, and past what others hold: neither owners nor other operators are waited for.
-- What its processes died of begins alone again.
with asked as materialized (
    select *
      from unnest(%(ids)s::bigint[], %(states)s::text[], %(finished)s::text[]) as asked(id, state, finished)
     order by id
), held as materialized (
    select held.*
      from asked
     cross join lateral (
           select id, state, outcome, error_code, attempt_count, ticket
             from inbox_deliveries
            where id = asked.id and state = asked.state and state in ('failed', 'sent', 'done')
              and finished_at is not distinct from nullif(asked.finished, '')::timestamptz
              for update skip locked
           ) as held
), changed as (
    update inbox_deliveries as delivery
       set state = 'pending', outcome = null, token = null, locked_by = null,
           suspect = coalesce(held.error_code = 'RETRIES_EXHAUSTED', false),
           available_at = statement_timestamp() + make_interval(secs => %(skew)s),
           attempt_count = 0, stale_count = 0, defer_count = 0, first_started_at = null, started_at = null,
           sent_at = null, finished_at = null, ticket = null, result = null, stage = null, progress = null
      from held
     where delivery.id = held.id
    returning delivery.id
), told as (
    insert into inbox_history (delivery_id, what, detail)
    select held.id, 'retried',
           jsonb_strip_nulls(jsonb_build_object(
               'by', %(by)s::text, 'role', session_user::text, 'reason', %(why)s::text,
               'was', held.state, 'outcome', held.outcome, 'code', held.error_code,
               'attempts', held.attempt_count, 'ticket', held.ticket))
      from held
)
select asked.id,
       case when asked.id in (select id from changed) then 'acted'
            else coalesce((select case when delivery.state = 'processing' then 'processing'
                                       when delivery.state = asked.state
                                        and delivery.finished_at is not distinct from
                                            nullif(asked.finished, '')::timestamptz then 'held'
                                       else 'changed' end
                             from inbox_deliveries as delivery
                            where delivery.id = asked.id), 'gone') end
  from asked
