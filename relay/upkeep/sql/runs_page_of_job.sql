-- The newest runs of one job, however rarely it runs among others.
select id, job, slot, worker, status, started_at, finished_at,
       extract(epoch from coalesce(finished_at, clock_timestamp()) - started_at)::float8 as seconds,
       counters, errors, error_code, error
  from relay_runs
 where job = %(job)s and id < %(before)s and (%(status)s::text is null or status = %(status)s)
 order by id desc
 limit %(rows)s
