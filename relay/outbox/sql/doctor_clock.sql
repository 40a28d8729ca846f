-- Asked within the statement, not at the transaction's begin: the clock that stamps events and says when they are due.
select extract(epoch from clock_timestamp())::float8 as now
