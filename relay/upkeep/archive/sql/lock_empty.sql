-- Nobody else fills it until the transaction ends.
lock table {table} in share row exclusive mode
