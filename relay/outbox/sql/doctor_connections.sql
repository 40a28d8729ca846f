-- Every role may count sessions; the reserved ones are not for the relay. -1 is no limit.
select current_setting('max_connections')::integer
           - current_setting('superuser_reserved_connections')::integer
           - coalesce(current_setting('reserved_connections', true), '0')::integer as most,
       (select sum(numbackends)::integer from pg_stat_database) as used,
       (select rolconnlimit from pg_roles where rolname = current_user) as of_role,
       (select count(*)::integer from pg_stat_activity where usename = current_user) as used_by_role
