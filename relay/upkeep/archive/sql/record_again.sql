-- The files count no more: the rows are there still, and are exported from the first one on.
update archive_exports set state = 'sealed', rows = null, files = '[]', verified_at = null, drop_eligible_at = null
 where id = %(id)s and state <> 'dropped'
