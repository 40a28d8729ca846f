-- One row for each of these jobs, whether anybody has ever begun it or not.
select job, last_slot, clock_timestamp() as now
  from unnest(%(jobs)s::text[]) as job
  left join relay_schedule on name = job
