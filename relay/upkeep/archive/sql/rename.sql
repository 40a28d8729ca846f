-- Rows of the month that come later make another partition of its name.
alter table {partition} rename to {sealed}
