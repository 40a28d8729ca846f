-- The files that were read back are those that are recorded; the first time counts.
update archive_exports
   set state = 'verified', verified_at = clock_timestamp(),
       drop_eligible_at = clock_timestamp() + %(wait)s::interval
 where id = %(id)s and state = 'sealed' and rows = %(rows)s and jsonb_array_length(files) = %(count)s
returning drop_eligible_at
