-- Of a job one run goes on at a time, over all processes on this schema, for as long as this transaction lives.
select pg_try_advisory_xact_lock(hashtextextended(%(lock)s, hashtextextended(current_schema()::text, 0)))
