-- What the server gives a session of this role to begin with, in milliseconds; 0 is no limit.
select name, reset_val::bigint as ms
  from pg_settings
 where name in ('statement_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout',
                'idle_session_timeout', 'lock_timeout')
 order by name
