-- A run ends once, as it says itself: who took it for killed saw its lock free, and knew no more.
update relay_runs
   set status = %(status)s, finished_at = clock_timestamp() - make_interval(secs => %(late)s::float8),
       counters = %(counters)s::jsonb, errors = %(errors)s::integer,
       error_code = %(error_code)s::text, error = %(error)s::text
 where id = %(id)s and status in ('running', 'killed')
returning id
