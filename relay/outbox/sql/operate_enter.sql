-- Names, limits and plans hold for this transaction alone: behind a pooler the session belongs to others.
-- A command that hangs gives back what it has locked. No plan rests on statistics, which are out of date in an outbox,
-- and none is compiled for costs that are not there.
-- Times are written in one way, whatever the server's own.
select set_config('search_path', %(search_path)s, true),
       set_config('lock_timeout', '30s', true),
       set_config('statement_timeout', '60s', true),
       set_config('idle_in_transaction_session_timeout', '60s', true),
       set_config('timezone', 'UTC', true),
       set_config('datestyle', 'ISO', true),
       set_config('jit', 'off', true),
       set_config('enable_seqscan', 'off', true),
       set_config('enable_bitmapscan', 'off', true),
       set_config('enable_hashjoin', 'off', true),
       set_config('enable_mergejoin', 'off', true)
