-- What an older revision has ended is as new again, and the walk goes on with it, or nothing of that happens.
-- What was decided meanwhile stays decided: only what has ended is taken up, and what was discarded never is.
with moved as (
    update inbox_checkpoints
       set position = %(position)s::text::jsonb, finished = %(finished)s,
           updated_at = statement_timestamp() + make_interval(secs => %(skew)s)
     where consumer = %(consumer)s and name = %(name)s and position = %(before)s::text::jsonb
    returning position::text
), mine as materialized (
    select held.*
      from moved
     cross join unnest(%(ids)s::bigint[]) as asked(id)
     cross join lateral (
           select id, state, outcome, error_code, attempt_count, handler_version
             from inbox_deliveries
            where id = asked.id
              and ((state = 'failed' and outcome <> 'unknown') or (%(done)s and state in ('done', 'failed')))
              and outcome <> 'discarded'
              and coalesce(handler_version, 0) < %(revision)s
              for update
           ) as held
), changed as (
    update inbox_deliveries as delivery
       set state = 'pending', outcome = null, token = null, locked_by = null, suspect = false,
           available_at = statement_timestamp() + make_interval(secs => %(skew)s),
           attempt_count = 0, stale_count = 0, defer_count = 0, first_started_at = null, started_at = null,
           sent_at = null, finished_at = null, ticket = null, result = null, stage = null, progress = null
      from mine
     where delivery.id = mine.id
    returning mine.*
), told as (
    insert into inbox_history (delivery_id, what, detail)
    select id, 'requeued:revision',
           jsonb_strip_nulls(jsonb_build_object(
               'from', handler_version, 'to', %(revision)s::integer, 'was', state, 'outcome', outcome,
               'code', error_code, 'attempts', attempt_count))
      from changed
)
select moved.position, (select count(*) from changed) from moved
