-- What is over is held before the statement that moves it looks: whatever may hang on it is there by then, or never comes.
-- What somebody else holds is left to the next round. Where a table has other columns by now, or others refer to it, nothing is
-- held, and so moved.
select count(*), {is_as_described} as is_as_described
  from (select from {table}
         where {beyond} and {up_to} and {is_over} and {is_as_described}
         order by {key}
         limit {rows}
           for update skip locked) as mover_held
