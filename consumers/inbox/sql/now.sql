-- The time by which deliveries end, and the newest of them.
select extract(epoch from statement_timestamp() + make_interval(secs => %(skew)s))::float8,
       coalesce((select id from inbox_deliveries order by id desc limit 1), 0)
