-- A row that is marked waits no more: asked of one that waits, as it would be. All of it, so that all is worked out.
select coalesce({pending}, false), octet_length({alias}::text)
  from (select {columns}
          from (select * from {table} as {alias} where {pending} limit %(rows)s) as {alias}) as {alias}
