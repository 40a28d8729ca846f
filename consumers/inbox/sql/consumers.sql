-- Each consumer that has deliveries is found once, by a loose walk over the first delivery of each.
with recursive names as (
    (
        select consumer from inbox_deliveries order by consumer limit 1
    )
    union all
    select (select consumer from inbox_deliveries where consumer > names.consumer order by consumer limit 1)
      from names
     where names.consumer is not null
)
select consumer from names where consumer is not null
