-- Every delivery is read once, the oldest first, so many at a time: what is done has no index of its own to pay for.
with found as materialized (
    select id from inbox_deliveries where id > %(after)s::bigint order by id limit %(reach)s
)
