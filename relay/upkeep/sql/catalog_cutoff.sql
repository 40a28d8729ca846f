-- What is over is so by the clock of the database, and for a whole run by one moment.
select coalesce(to_timestamp(%(before)s::float8), clock_timestamp() - make_interval(secs => %(seconds)s))::text,
       current_user::text
