-- Names, forms, time limits and plans hold for this transaction alone: behind a pooler the session belongs to others.
-- A relay that hangs loses its locks: idle between two statements, or with an answer that it does not take.
-- The statistics of an outbox are always out of date, so no plan may rest on them: rows are found by index only, in the
-- order of that index, one plan for all values, and none is compiled for costs that are not there.
select set_config('search_path', %(search_path)s, true),
       set_config('datestyle', 'ISO', true),
       set_config('timezone', 'UTC', true),
       set_config('idle_in_transaction_session_timeout', %(idle_tx_ms)s, true),
       set_config('statement_timeout', %(idle_tx_ms)s, true),
       set_config('tcp_user_timeout', %(idle_tx_ms)s, true),
       set_config('tcp_keepalives_idle', '10', true),
       set_config('tcp_keepalives_interval', '5', true),
       set_config('tcp_keepalives_count', '3', true),
       set_config('plan_cache_mode', 'force_generic_plan', true),
       set_config('jit', 'off', true),
       set_config('enable_seqscan', 'off', true),
       set_config('enable_bitmapscan', 'off', true),
       set_config('enable_hashjoin', 'off', true),
       set_config('enable_mergejoin', 'off', true),
       set_config('enable_sort', 'off', true)
