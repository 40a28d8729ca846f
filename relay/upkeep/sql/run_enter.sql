-- That a run's machine has vanished the server finds out within half a minute: for as long as it does not, the next run waits
-- for the locks of this transaction.
select set_config('tcp_user_timeout', '25000', true),
       set_config('tcp_keepalives_idle', '10', true),
       set_config('tcp_keepalives_interval', '5', true),
       set_config('tcp_keepalives_count', '3', true)
