-- What is over is held before the statement that moves it looks: whatever may hang on it is there by then, or never comes.
-- What somebody else holds is left to the next round.
select count(*)
  from (select from {table}
         where {beyond} and {up_to} and {is_over}
         order by {key}
         limit {rows}
           for update skip locked) as mover_held
