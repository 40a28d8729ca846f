-- For the whole session, which is known by now to be the relay's own: the lock of a relay that is gone goes with it soon,
-- and rows are found by index only, for the statistics of an outbox are always out of date, as in `enter`. Looks that were
-- serializable would make transactions of the application fail.
select set_config('search_path', %(search_path)s, false),
       set_config('statement_timeout', %(statement_ms)s, false),
       set_config('default_transaction_isolation', 'read committed', false),
       set_config('idle_session_timeout', '0', false),
       set_config('tcp_user_timeout', '15s', false),
       set_config('tcp_keepalives_idle', '10', false),
       set_config('tcp_keepalives_interval', '5', false),
       set_config('tcp_keepalives_count', '3', false),
       set_config('jit', 'off', false),
       set_config('enable_seqscan', 'off', false),
       set_config('enable_bitmapscan', 'off', false),
       set_config('enable_hashjoin', 'off', false),
       set_config('enable_mergejoin', 'off', false),
       set_config('enable_sort', 'off', false)
