-- Types and tables are told with their schemas, whatever the role looks up first. Who reads the archive waits behind what is
-- to be made there, and so not for long.
select set_config('search_path', 'pg_catalog', true),
       set_config('timezone', 'UTC', true),
       set_config('datestyle', 'ISO, YMD', true),
       set_config('statement_timeout', '10s', true),
       set_config('lock_timeout', '500ms', true)
