-- A month is made aside, so that nobody who reads the others waits.
create table {month} (like {shelf})
