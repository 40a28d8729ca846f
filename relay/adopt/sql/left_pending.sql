-- A row that is marked waits no more: asked of one that waits, as it would be.
select coalesce({pending}, false)
  from (select {columns}
          from (select * from {table} as {alias} where {pending} limit %(rows)s) as {alias}) as {alias}
