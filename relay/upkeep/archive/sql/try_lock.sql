-- One process at a time exports, drops or checks what came from a table; the lock lasts as long as the transaction.
select pg_try_advisory_xact_lock(hashtextextended('worker:archive:' || %(origin)s, 0))
