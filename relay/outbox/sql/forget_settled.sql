-- Once every transaction from before the mark has ended, all rows that the command means can be seen, and none appears.
select pg_snapshot_xmin(pg_current_snapshot()) > %(xid)s::text::xid8 as settled
