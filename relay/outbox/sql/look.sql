-- Nothing is locked, and all that is said is of one moment: when every transaction from before the mark has ended, what
-- they committed has been looked at.
-- Of each ordering key only the first row counts; beyond so many keys it is not known whether there is something to do,
-- so there may be.
with recursive walk as (
    select 0 as step, ''::text as ordering_key, null::timestamptz as due_at
     union all
    select step + 1, head.ordering_key, head.due_at
      from walk
     cross join lateral (
           select event.ordering_key, case when failed_at is null then available_at end as due_at
             from outbox_events as event
            where published_at is null and event.ordering_key is not null and (failed_at is null or blocks_key)
              and event.ordering_key > walk.ordering_key and event.id > %(ordered_safe)s
            order by event.ordering_key, event.id
            limit 1) as head
     where step <= %(keys)s
       and (walk.due_at is null or walk.due_at > statement_timestamp() + make_interval(secs => %(skew)s))
), moment as (
    select statement_timestamp() + make_interval(secs => %(skew)s) as now
)
select 'outbox_events'::regclass::oid::bigint as relation,
       exists (select from outbox_events
                where published_at is null and failed_at is null and ordering_key is null
                  and available_at = '-infinity' and id > %(fresh_safe)s)
       or exists (select from outbox_events
                   where published_at is null and failed_at is null and ordering_key is null
                     and available_at > '-infinity'
                     and available_at <= statement_timestamp() + make_interval(secs => %(skew)s))
       or exists (select from walk where due_at <= now or step > %(keys)s) as claimable,
       date_part('epoch', least(
           (select available_at from outbox_events
             where published_at is null and failed_at is null and ordering_key is null
               and available_at > statement_timestamp() + make_interval(secs => %(skew)s)
               and available_at > '-infinity'
             order by available_at, id
             limit 1),
           (select min(due_at) from walk where due_at > now))) - date_part('epoch', now) as due_in_seconds,
       coalesce(pg_snapshot_xmin(pg_current_snapshot()) > %(mark)s::text::xid8, false) as settled
  from moment
