-- All rows of a restore are one COPY for each file, in one transaction.
copy {table} ({columns}) from stdin
