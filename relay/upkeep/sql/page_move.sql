-- A row that is over goes with all that hangs on it, or all of it stays; what somebody holds is left to the next round.
with mover_page as materialized (
    select {keys}, {is_over} as is_over
      from {table}
     where {beyond} and {up_to}
     order by {key}
     limit {rows}
), mover_held as materialized (
    select mover_page.*
      from mover_page
     cross join lateral (select from {table} where {is_in_page} and {is_over} for update skip locked) as mover_lock
     where mover_page.is_over
), mover_gone as (
    delete from {table} using mover_held where {is_held} returning {columns}
){with_it}
select count(*) from mover_gone
