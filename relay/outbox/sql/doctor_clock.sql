-- The clock that events are stamped and scheduled by, as seconds since 1970.
select extract(epoch from clock_timestamp())::float8 as now
