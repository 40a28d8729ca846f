-- What was verified counts as such no more, and may not be dropped: a file of it is missing or changed.
update archive_exports set state = 'sealed', verified_at = null, drop_eligible_at = null
 where id = %(id)s and state = 'verified'
