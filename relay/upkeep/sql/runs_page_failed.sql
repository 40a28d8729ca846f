-- The newest runs that did not end well or had errors, found by the index of those alone, however many had none.
select * from (
select id, job, slot, worker, status, started_at, finished_at,
       extract(epoch from coalesce(finished_at, clock_timestamp()) - started_at)::float8 as seconds,
       counters, errors, error_code, error
  from relay_runs
 where (status not in ('running', 'done') or errors > 0) and id < %(before)s
 order by id desc
offset 0) as failed
 where (%(status)s::text is null or status = %(status)s) and (%(job)s::text is null or job = %(job)s)
 limit %(rows)s
