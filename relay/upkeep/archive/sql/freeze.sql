-- No row comes, and none becomes another one, before its file is all that is left of it; those that there are stay.
alter table {sealed} add constraint sealed check (false) not valid
