-- Whatever the origin had of defaults, checks and references: rows that are over are kept as they were.
create table {shelf} ({columns}) partition by range ({age})
