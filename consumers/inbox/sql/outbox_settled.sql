-- Once every transaction from before the mark has ended, all events up to it can be seen, and none appears.
select pg_snapshot_xmin(pg_current_snapshot()) > %(xid)s::text::xid8
