, {name} as (
    insert into {shelf} ({columns}) select {columns} from {gone}
)
