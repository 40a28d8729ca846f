-- Names, times and rights hold for this transaction alone, and are those of the trigger: an expression means one thing.
-- A policy that would hide rows ends the statement instead: a row that is not seen would be lost.
select set_config('search_path', %(search_path)s, true),
       set_config('lock_timeout', %(lock_timeout)s, true),
       set_config('statement_timeout', '0', true),
       set_config('idle_in_transaction_session_timeout', '60s', true),
       set_config('timezone', 'UTC', true),
       set_config('datestyle', 'ISO', true),
       set_config('row_security', 'off', true),
       set_config('jit', 'off', true)
