-- Whoever waits for a lock's holder waits for a process: the server must not end it for being patient.
select set_config(name, '0', true)
  from pg_settings
 where name in ('idle_in_transaction_session_timeout', 'transaction_timeout')
