-- What a reconciliation means is settled before it reads: events up to the newest that it sees. Every emit takes its xid
-- before it draws an id, and this xid is taken after the newest was seen: whoever drew an id up to it has a lower one.
select coalesce((select id from outbox_events order by id desc limit 1), 0), pg_current_xact_id()::text
