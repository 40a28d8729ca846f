-- Whether there is a history that this role may read, and what time it is where it is written.
select to_regclass('relay_runs') is not null as there,
       coalesce(has_table_privilege(to_regclass('relay_runs'), 'select')
                and has_table_privilege(to_regclass('relay_schedule'), 'select'), false) as may_read,
       clock_timestamp() as now
