-- In the transaction that drops: what is gone is recorded as gone, and nothing else is.
update archive_exports
   set state = 'dropped', dropped_at = clock_timestamp(), dropped_by = %(by)s, dropped_why = %(why)s
 where id = %(id)s and state = 'verified' and (%(by)s::text is not null or drop_eligible_at <= clock_timestamp())
