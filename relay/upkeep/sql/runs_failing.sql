-- Jobs whose last run that has ended did not end well: of each job a step or two of its index are read.
select schedule.name as job, last.status, last.finished_at, last.error_code
  from relay_schedule as schedule
 cross join lateral (
       select status, finished_at, error_code
         from relay_runs
        where job = schedule.name and status <> 'running'
        order by id desc
        limit 1) as last
 where strpos(schedule.name, ':') = 0 and last.status <> 'done'
 order by schedule.name
