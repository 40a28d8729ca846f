-- What nobody works on, and is still as it was chosen, is given up and kept, and history has by whom and why.
-- In the order of ids, and past what others hold: neither owners nor other operators are waited for.
with asked as materialized (
    select *
      from unnest(%(ids)s::bigint[], %(states)s::text[], %(finished)s::text[]) as asked(id, state, finished)
     order by id
), held as materialized (
    select held.*
      from asked
     cross join lateral (
           select id, state, outcome, error_code, attempt_count
             from inbox_deliveries
            where id = asked.id and state = asked.state and state in ('failed', 'pending')
              and finished_at is not distinct from nullif(asked.finished, '')::timestamptz
              and outcome is distinct from 'discarded'
              for update skip locked
           ) as held
), changed as (
    update inbox_deliveries as delivery
       set state = 'failed', outcome = 'discarded', token = null, suspect = false,
           finished_at = coalesce(delivery.finished_at, clock_timestamp())
      from held
     where delivery.id = held.id
    returning delivery.id
), told as (
    insert into inbox_history (delivery_id, what, detail)
    select held.id, 'discarded',
           jsonb_strip_nulls(jsonb_build_object(
               'by', %(by)s::text, 'role', session_user::text, 'reason', %(why)s::text,
               'was', held.state, 'outcome', held.outcome, 'code', held.error_code,
               'attempts', held.attempt_count))
      from held
)
select asked.id,
       case when asked.id in (select id from changed) then 'acted'
            else coalesce((select case when delivery.state = 'processing' then 'processing'
                                       when delivery.state = asked.state
                                        and delivery.finished_at is not distinct from
                                            nullif(asked.finished, '')::timestamptz
                                        and delivery.outcome is distinct from 'discarded' then 'held'
                                       else 'changed' end
                             from inbox_deliveries as delivery
                            where delivery.id = asked.id), 'gone') end
  from asked
