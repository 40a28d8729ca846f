-- With whose rights outbox_emit acts, on whose objects: where pg_temp is not the last to be looked at, it is the first.
select has_schema_privilege('public', emit.pronamespace, 'create') as anybody_creates,
       emit.prosecdef as definer,
       exists (select from unnest(emit.proconfig) as setting where setting ~ '^search_path=.+, *"?pg_temp"?$') as fixed
  from pg_proc as emit
 where emit.pronamespace = to_regnamespace(%(schema)s) and emit.proname = 'outbox_emit'
   and pg_get_function_identity_arguments(emit.oid) = 'events jsonb'
