-- Types and tables are told with their schemas, whatever the role looks up first.
select set_config('search_path', 'pg_catalog', true),
       set_config('timezone', 'UTC', true),
       set_config('datestyle', 'ISO, YMD', true),
       set_config('statement_timeout', '10s', true),
       set_config('lock_timeout', '2s', true)
