-- Whoever stores events from here on tells of them; whoever stored some before has a lower xid than the one returned.
-- Null where another relay sleeps already. The order is that of the words: first the lock, then the xid.
-- A relay that is stopped or cut off must not keep the lock: the server ends its session when the next look is overdue.
select case when pg_try_advisory_lock(2002873189, %(relation)s::oid::integer) then
       case when set_config('idle_session_timeout', %(idle_ms)s, false) is not null then pg_current_xact_id()::text end end
