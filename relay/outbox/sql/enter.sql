-- Names, time limits and plans hold for this transaction alone: behind a pooler the session belongs to others.
-- The statistics of an outbox are always out of date, so no plan may rest on them: rows are found by index only.
select set_config('search_path', %(search_path)s, true),
       set_config('idle_in_transaction_session_timeout', %(idle_tx_ms)s, true),
       set_config('enable_seqscan', 'off', true),
       set_config('enable_bitmapscan', 'off', true),
       set_config('enable_hashjoin', 'off', true),
       set_config('enable_mergejoin', 'off', true)
