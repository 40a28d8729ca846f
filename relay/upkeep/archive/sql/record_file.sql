-- The next file, and no other: two processes cannot both have written it.
update archive_exports set files = files || %(file)s::jsonb
 where id = %(id)s and state = 'sealed' and rows is null and jsonb_array_length(files) = %(count)s
