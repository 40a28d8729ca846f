-- Two tables of one name, in two schemas, are not mixed up.
comment on table {shelf} is {origin}
