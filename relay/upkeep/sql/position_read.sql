-- A walk goes on where it was, for as long as it goes along the same columns.
select position -> {walk} from {schedule} where name = {name}
