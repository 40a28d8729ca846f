-- What the relay was written for, and whether this server can be written to.
select current_setting('server_version_num')::integer as version_number,
       current_setting('server_version') as version,
       current_setting('server_encoding') as encoding,
       pg_is_in_recovery() as standby,
       pg_backend_pid() as backend_pid
