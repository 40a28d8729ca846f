-- A column that the origin got since is kept, too.
alter table {shelf} add column if not exists {column}
