-- Asked of the server that answers, not of the driver: a pooler between them tells the driver what it likes.
select current_setting('server_version_num')::integer as version_number,
       current_setting('server_version') as version,
       current_setting('server_encoding') as encoding,
       pg_is_in_recovery() as standby,
       pg_backend_pid() as backend_pid
