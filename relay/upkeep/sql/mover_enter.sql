-- Nobody waits long for a page, and a page for nobody: a mover that hangs loses its locks.
-- What is kept as text reads the same in every session. Statistics may be out of date, so no plan rests on them.
-- A page that is lost with the server is lost as a whole, and moved again; nothing waits for its commit.
select set_config('lock_timeout', '500ms', true),
       set_config('statement_timeout', '10s', true),
       set_config('idle_in_transaction_session_timeout', '10s', true),
       set_config('synchronous_commit', 'off', true),
       set_config('timezone', 'UTC', true),
       set_config('datestyle', 'ISO, YMD', true),
       set_config('intervalstyle', 'postgres', true),
       set_config('bytea_output', 'hex', true),
       set_config('extra_float_digits', '1', true),
       set_config('jit', 'off', true),
       set_config('enable_seqscan', 'off', true),
       set_config('enable_bitmapscan', 'off', true),
       set_config('enable_hashjoin', 'off', true),
       set_config('enable_mergejoin', 'off', true),
       set_config('enable_sort', 'off', true)
