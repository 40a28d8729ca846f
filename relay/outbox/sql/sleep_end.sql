-- Nobody is told from here on. False where this session did not have the lock.
select pg_advisory_unlock(2002873189, %(relation)s::oid::integer), set_config('idle_session_timeout', '0', false)
