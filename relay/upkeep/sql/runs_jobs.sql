-- Each job that ever had a slot, with its newest run and a day of its history; of its runs the newest 100,000 are looked at,
-- which is more than a day of a job each second. Walks over tables have names with a colon.
select schedule.name as job, schedule.last_slot, last.id, last.status, last.started_at, last.finished_at,
       extract(epoch from coalesce(last.finished_at, clock_timestamp()) - last.started_at)::float8 as seconds,
       last.errors, last.error_code, day.runs, day.failures
  from relay_schedule as schedule
  left join lateral (
       select id, status, started_at, finished_at, errors, error_code
         from relay_runs
        where job = schedule.name
        order by id desc
        limit 1) as last on true
 cross join lateral (
       select count(*) as runs, count(*) filter (where status not in ('running', 'done') or errors > 0) as failures
         from (select status, started_at, errors
                 from relay_runs
                where job = schedule.name
                order by id desc
                limit 100000) as newest
        where started_at > clock_timestamp() - interval '24 hours') as day
 where strpos(schedule.name, ':') = 0
 order by schedule.name
