-- A trigger is what it runs: tables and schemas change their names.
select space.nspname, function.proname
  from pg_trigger
  join pg_proc as function on function.oid = tgfoid
  join pg_namespace as space on space.oid = function.pronamespace
 where tgrelid = %(table)s and tgname = %(trigger)s
