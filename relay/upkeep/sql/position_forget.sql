-- A round that has come to its end leaves nothing: the next one begins at the first row.
update {schedule} set position = position - {walk}, updated_at = clock_timestamp() where name = {name}
