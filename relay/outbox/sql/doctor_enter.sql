-- Looking changes nothing, waits for nobody, and leaves no setting behind in a session that may be a pooler's.
-- No plan rests on statistics, which are out of date in an outbox, and none is compiled for costs that are not there.
select set_config('search_path', %(search_path)s, true),
       set_config('transaction_read_only', 'on', true),
       set_config('statement_timeout', '15s', true),
       set_config('lock_timeout', '2s', true),
       set_config('jit', 'off', true),
       set_config('enable_seqscan', 'off', true),
       set_config('enable_bitmapscan', 'off', true)
