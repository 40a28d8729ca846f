-- What is gone from its table is in the archive: no row is in both of them, and none in neither.
, {name} as (
    insert into {shelf} ({columns}) select {columns} from {gone}
)
