-- Runs that stand as running: as many as there are jobs at work, and those that were killed and have had no next run.
with at_work as materialized (
    select id, job, slot, worker, status, started_at, finished_at,
           extract(epoch from clock_timestamp() - started_at)::float8 as seconds,
           counters, errors, error_code, error
      from relay_runs
     where status = 'running'
)
select * from at_work
 where id < %(before)s and (%(job)s::text is null or job = %(job)s)
 order by id desc
 limit %(rows)s
