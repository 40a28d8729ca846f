-- Names, forms, time limits and plans hold for as long as the session does; behind a pooler, where it belongs to others
-- as well, for this transaction alone.
-- Whoever holds a job's lock may be idle for as long as the job takes, whatever a server has for default; that its peer has
-- vanished the server finds out within half a minute.
-- The statistics of a history are always out of date, so no plan may rest on them: rows are found by index only, in the
-- order of that index, one plan for all values.
select set_config('search_path', %(search_path)s, %(local)s),
       set_config('datestyle', 'ISO', %(local)s),
       set_config('timezone', 'UTC', %(local)s),
       set_config('default_transaction_isolation', 'read committed', %(local)s),
       set_config('idle_in_transaction_session_timeout', '0', %(local)s),
       -- Postgres 17 has it, and those before it do not.
       case when current_setting('transaction_timeout', true) is not null
            then set_config('transaction_timeout', '0', %(local)s) end,
       set_config('statement_timeout', %(statement_ms)s, %(local)s),
       set_config('lock_timeout', %(statement_ms)s, %(local)s),
       set_config('tcp_user_timeout', '25000', %(local)s),
       set_config('tcp_keepalives_idle', '10', %(local)s),
       set_config('tcp_keepalives_interval', '5', %(local)s),
       set_config('tcp_keepalives_count', '3', %(local)s),
       set_config('plan_cache_mode', 'force_generic_plan', %(local)s),
       set_config('jit', 'off', %(local)s),
       set_config('enable_seqscan', 'off', %(local)s),
       set_config('enable_bitmapscan', 'off', %(local)s),
       set_config('enable_hashjoin', 'off', %(local)s),
       set_config('enable_mergejoin', 'off', %(local)s),
       set_config('enable_sort', 'off', %(local)s)
