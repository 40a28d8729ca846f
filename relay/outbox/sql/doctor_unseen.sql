-- What this role cannot see is counted, so that seeing nothing is not taken for there being nothing.
select count(*)::integer as sessions
  from pg_stat_activity
 where usename is not null and usename <> current_user
   and not (pg_has_role(current_user, 'pg_read_all_stats', 'usage') or pg_has_role(current_user, usesysid, 'usage'))
