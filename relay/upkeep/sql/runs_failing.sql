-- Jobs whose last run that has ended did not end well or had errors, where that was within a day and a half: what nobody runs
-- any more is forgotten. Of each job a step or two of its index are read.
select schedule.name as job, last.status, last.finished_at, last.errors, last.error_code
  from relay_schedule as schedule
 cross join lateral (
       select status, finished_at, errors, error_code
         from relay_runs
        where job = schedule.name and status <> 'running'
        order by id desc
        limit 1) as last
 where strpos(schedule.name, ':') = 0
   and (last.status <> 'done' or last.errors > 0)
   and last.finished_at > clock_timestamp() - interval '36 hours'
 order by schedule.name
