-- Nothing is locked, and all that is said is of one moment: when every transaction from before the mark has ended, what
-- they committed has been looked at.
-- It answers with the ids of rows that a claim would take, the newest first and a limited number of each kind, so that
-- those which could not be taken are told from new ones. Rows of topics that take nothing now do not count; no more
-- than the newest of all are looked through for others.
-- Of each ordering key only the first row counts. So many keys are walked, and it is said where the next look goes on.
-- As for claims, rows that were put back may stand below the floor.
with recursive floor as materialized (
    select least(%(ordered_safe)s::bigint,
                 (select id - 1 from outbox_events
                   where published_at is null and ordering_key is not null and (failed_at is null or blocks_key)
                     and available_at > '-infinity'
                   order by id limit 1)) as id
), walk as (
    select 0 as step, %(after)s::text as ordering_key, 0::bigint as id, null::timestamptz as due_at, 0 as found
     union all
    select step + 1, head.ordering_key, head.id, head.due_at,
           found + coalesce(head.due_at <= statement_timestamp() + make_interval(secs => %(skew)s), false)::integer
      from walk
     cross join lateral (
           select event.ordering_key, event.id,
                  case when failed_at is null
                        and (cardinality(%(open_topics)s::text[]) = 0
                             or not coalesce(topic = any (%(open_topics)s::text[]),
                                             event_type = any (%(open_types)s::text[])))
                       then available_at end as due_at
             from outbox_events as event
            where published_at is null and event.ordering_key is not null and (failed_at is null or blocks_key)
              and event.ordering_key > walk.ordering_key and event.id > (select id from floor)
            order by event.ordering_key, event.id
            limit 1) as head
     where step < %(keys)s and found < %(rows)s
), moment as (
    select statement_timestamp() + make_interval(secs => %(skew)s) as now
)
select 'outbox_events'::regclass::oid::bigint as relation,
       array(select id
               from (select id, topic, event_type from outbox_events
                      where published_at is null and failed_at is null and ordering_key is null
                        and available_at = '-infinity' and id > %(fresh_safe)s
                      order by id desc
                      limit %(reach)s) as newest
              where cardinality(%(open_topics)s::text[]) = 0
                 or not coalesce(topic = any (%(open_topics)s::text[]), event_type = any (%(open_types)s::text[]))
              limit %(rows)s)
       || array(select id
                  from (select id, topic, event_type from outbox_events
                         where published_at is null and failed_at is null and ordering_key is null
                           and available_at > '-infinity'
                           and available_at <= statement_timestamp() + make_interval(secs => %(skew)s)
                         order by available_at desc, id desc
                         limit %(reach)s) as newest
                 where cardinality(%(open_topics)s::text[]) = 0
                    or not coalesce(topic = any (%(open_topics)s::text[]), event_type = any (%(open_types)s::text[]))
                 limit %(rows)s)
       || array(select id from walk where due_at <= now) as claimable,
       date_part('epoch', least(
           (select available_at from outbox_events
             where published_at is null and failed_at is null and ordering_key is null
               and available_at > statement_timestamp() + make_interval(secs => %(skew)s)
               and available_at > '-infinity'
             order by available_at, id
             limit 1),
           (select min(due_at) from walk where due_at > now))) - date_part('epoch', now) as due_in_seconds,
       coalesce(pg_snapshot_xmin(pg_current_snapshot()) > %(mark)s::text::xid8, false) as settled,
       (select case when step >= %(keys)s or found >= %(rows)s then ordering_key end
          from walk order by step desc limit 1) as last_key
  from moment
