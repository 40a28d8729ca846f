-- A row that is over still, and held by this transaction, goes with all that hangs on it, or all of it stays.
with mover_page as materialized (
    select {keys}, {is_over} and {table}.xmax = pg_current_xact_id()::xid as is_over
      from {table}
     where {beyond} and {up_to}
     order by {key}
     limit {rows}
), mover_gone as (
    delete from {table} using mover_page where mover_page.is_over and {is_in_page} returning {columns}
){with_it}
select count(*) from mover_gone
