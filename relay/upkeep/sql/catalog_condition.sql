-- What somebody wrote as a condition is one, before a page of rows depends on it.
select from {table} where ({where}
) limit 0
