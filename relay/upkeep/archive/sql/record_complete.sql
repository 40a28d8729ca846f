-- All rows are in the files that are recorded.
update archive_exports set rows = %(rows)s
 where id = %(id)s and state = 'sealed' and rows is null and jsonb_array_length(files) = %(count)s
