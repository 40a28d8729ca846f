-- The next rows in the order of the key, along its index; nobody writes to a sealed table, so pages fit each other.
copy (select {columns} from {table} as r where {beyond} order by {key} limit {rows}) to stdout (format binary)
