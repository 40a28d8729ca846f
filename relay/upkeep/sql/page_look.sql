-- A page is read along the key alone, whatever other indexes there are; nothing is held yet.
with mover_page as materialized (
    select {keys}, {is_over} as is_over, {is_young} as is_young, {month} as month
      from {table}
     where {beyond}
     order by {key}
     limit {rows}
)
select (select count(*) from mover_page),
       (select count(*) from mover_page where is_over),
       (select array[{texts}] from mover_page order by {backwards} limit 1),
       (select coalesce(is_young, false) from mover_page order by {backwards} limit 1),
       array(select distinct month::text from mover_page where is_over and month is not null){of_children}
