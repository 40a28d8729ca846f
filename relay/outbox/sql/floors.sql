-- No row is pending at or below a safe floor, and none can appear there: every emit takes its xid before it draws an id,
-- so whoever drew an id below one that had been seen has a lower xid than whoever took one after seeing it. Once all
-- those have ended, what is pending up to that id can be seen, rows that are locked included, for this locks nothing.
-- pg_snapshot_xmax would not do for that xid: it is one beyond the latest that has ended, and of those that are at work
-- some have a greater one, and an id below.
-- Of ordered rows the first is looked for by id, among so many; beyond, by the index that holds none but them. The key
-- in a condition keeps the planner to that index, and a condition in a case keeps it from it.
with noted as materialized (
    select coalesce(pg_snapshot_xmin(pg_current_snapshot()) > %(xid)s::text::xid8, false) as passed,
           least(%(seen)s::bigint, %(ordered_safe)s::bigint + 100000) as near
), looked as materialized (
    select case when passed then (
               select id from outbox_events
                where published_at is null and failed_at is null and ordering_key is null
                  and available_at = '-infinity' and id > %(fresh_safe)s and id <= %(seen)s
                order by id limit 1) end as fresh,
           case when passed and exists (
               select from outbox_events
                where published_at is null and ordering_key > '' and (failed_at is null or blocks_key)
                  and id > %(ordered_safe)s and id <= %(seen)s) then
               coalesce(
                   (select id from outbox_events
                     where id > %(ordered_safe)s and id <= near
                       and case when published_at is null and ordering_key is not null
                                     and (failed_at is null or blocks_key) then true end
                     order by id limit 1),
                   case when near < %(seen)s then (
                       select min(id) from (
                           select id from outbox_events
                            where published_at is null and ordering_key > '' and (failed_at is null or blocks_key)
                              and id > near and id <= %(seen)s
                            order by ordering_key, id
                           offset 0) as beyond) end) end as ordered,
           passed
      from noted
)
select case when passed or %(xid)s::text is null then pg_current_xact_id()::text end as xid,
       case when passed then greatest(%(fresh_safe)s::bigint, coalesce(fresh - 1, %(seen)s::bigint)) end as fresh_safe,
       case when passed then greatest(%(ordered_safe)s::bigint, coalesce(ordered - 1, %(seen)s::bigint)) end as ordered_safe
  from looked
