-- A month is one of UTC.
alter table {shelf} attach partition {month} for values from ({begins}) to ({ends})
