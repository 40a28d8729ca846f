-- In the transaction that seals: a sealed table without a record would be nobody's.
insert into archive_exports (origin, month, part, sealed) values (%(origin)s, %(month)s, %(part)s, %(sealed)s)
