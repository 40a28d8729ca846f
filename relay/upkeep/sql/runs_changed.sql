-- What came since, and what has become of those that were running: nothing older is looked at.
select * from (
select id, job, slot, worker, status, started_at, finished_at,
       extract(epoch from coalesce(finished_at, clock_timestamp()) - started_at)::float8 as seconds,
       counters, errors, error_code, error
  from relay_runs
 where id > %(after)s
 union all
select id, job, slot, worker, status, started_at, finished_at,
       extract(epoch from coalesce(finished_at, clock_timestamp()) - started_at)::float8 as seconds,
       counters, errors, error_code, error
  from relay_runs
 where id = any (%(running)s::bigint[]) and id <= %(after)s) as changed
 order by id
 limit 10000
