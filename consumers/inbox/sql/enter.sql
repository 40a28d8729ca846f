-- Names, forms, time limits and plans hold for as long as the session does; behind a pooler, where it belongs to others
-- as well, for this transaction alone.
-- Whatever a server has for default: of rows that are passed over while others have them none may be an error.
-- The statistics of an inbox are always out of date, so no plan may rest on them: rows are found by index only, in the
-- order of that index, one plan for all values.
select set_config('search_path', %(search_path)s, %(local)s),
       set_config('datestyle', 'ISO', %(local)s),
       set_config('timezone', 'UTC', %(local)s),
       set_config('array_nulls', 'on', %(local)s),
       set_config('default_transaction_isolation', 'read committed', %(local)s),
       set_config('statement_timeout', %(statement_ms)s, %(local)s),
       set_config('lock_timeout', %(statement_ms)s, %(local)s),
       set_config('tcp_user_timeout', %(statement_ms)s, %(local)s),
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
