-- No row is put aside twice.
alter table {month} add primary key ({key})
