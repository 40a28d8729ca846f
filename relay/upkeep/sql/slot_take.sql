-- A slot is taken once, by whoever comes first, and not before its moment by this database's clock; one that is long over
-- by that clock is nobody's any more. A job that nobody knew has no slot before now, or waits for its first. Who took the
-- last one stands beside it: whoever has lost the answer finds out.
with moment as materialized (
    select clock_timestamp() + make_interval(secs => %(skew)s) as now
),
taken as (
    update relay_schedule
       set last_slot = %(slot)s::timestamptz,
           position = jsonb_build_object('by', %(by)s::text),
           updated_at = clock_timestamp()
      from moment
     where name = %(name)s
       and (last_slot is null or last_slot < %(slot)s::timestamptz)
       and %(slot)s::timestamptz <= moment.now
       and moment.now < %(until)s::timestamptz
    returning last_slot
),
made as (
    insert into relay_schedule (name, last_slot)
    select %(name)s, case when not %(at_once)s then moment.now end
      from moment
     where not exists (select from relay_schedule where name = %(name)s)
        on conflict (name) do nothing
    returning last_slot
)
select exists (select from taken) as taken,
       extract(epoch from moment.now)::float8 as now,
       extract(epoch from coalesce((select last_slot from made), seen.last_slot))::float8 as last_slot,
       seen.position ->> 'by' as taken_by
  from moment
  left join relay_schedule as seen on seen.name = %(name)s
