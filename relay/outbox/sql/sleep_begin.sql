-- Whoever stores events from here on tells of them; whoever stored some before has a lower xid than the one returned.
-- Null where another relay sleeps already. The order is that of the words: first the lock, then the xid.
select case when pg_try_advisory_lock(2002873189, %(relation)s::oid::integer) then pg_current_xact_id()::text end
