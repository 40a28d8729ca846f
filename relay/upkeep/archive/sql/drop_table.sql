-- Its rows are in files that were read back a moment ago.
drop table {table}
