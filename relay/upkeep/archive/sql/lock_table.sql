-- Nobody reads or writes it until the transaction ends.
lock table {table} in access exclusive mode
