-- What is over is so by the clock of the database, and for a whole run by one moment.
select (clock_timestamp() - make_interval(secs => %(seconds)s))::text, current_user::text
