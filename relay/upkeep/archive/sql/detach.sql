-- No row can be routed there from now on.
alter table {parent} detach partition {partition}
