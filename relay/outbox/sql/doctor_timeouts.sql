-- What a session of this role begins with (reset_val), whatever this transaction has set. Milliseconds; 0 is no limit.
select name, reset_val::bigint as ms
  from pg_settings
 where name in ('statement_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout',
                'idle_session_timeout', 'lock_timeout')
 order by name
