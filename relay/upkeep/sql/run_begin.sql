-- Whoever begins a run has the job's lock: whatever else is said to be under way has ended without a word.
with killed as (
    update relay_runs set status = 'killed', finished_at = clock_timestamp()
     where job = %(job)s and status = 'running'
)
insert into relay_runs (job, slot, worker) values (%(job)s, %(slot)s, %(worker)s) returning id
