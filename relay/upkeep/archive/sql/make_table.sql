-- A table of the columns that the files have.
create table {table} ({columns})
