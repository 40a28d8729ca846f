-- What is recorded of a table's months, the oldest part first.
select id, origin, month, part, sealed, state, rows, files, sealed_at, verified_at, drop_eligible_at,
       drop_eligible_at <= clock_timestamp() as eligible, dropped_at, dropped_by, dropped_why
  from archive_exports
 where origin = %(origin)s and (%(month)s::date is null or month = %(month)s)
 order by month, part
