-- What was exported is all that there is.
select count(*) from {table}
