-- Counting ends at a limit, and no row is read to be passed over: a look costs the same on a table of any size.
-- Rows that hold up their key cut the index of ordered rows into spans, each counted by what its rows wait for.
-- Of a limited number of keys the first row is read: since when it has been due, or that it was put off unfailed.
-- Where more rows hold up keys than are looked at, of what is due these first rows alone are known.
with recursive heads as (
    select 0 as place, '' as ordering_key, 0::bigint as id, null::timestamptz as created_at,
           null::timestamptz as available_at, null::timestamptz as failed_at
     union all
    select heads.place + 1, head.*
      from heads cross join lateral (
           select ordering_key, id, created_at, available_at, failed_at from outbox_events
            where published_at is null and ordering_key is not null and (failed_at is null or blocks_key)
              and ordering_key > heads.ordering_key
            order by ordering_key, id limit 1) as head
     where heads.place < %(keys)s
), failing as materialized (
    select ordering_key, id, failed_at, blocks_key as holds from outbox_events
     where failed_at is not null and failure_reason <> 'discarded'
     union all
    select ordering_key, id, null, available_at > statement_timestamp() from outbox_events
     where published_at is null and failed_at is null and attempt_count > 0 limit %(most)s
), held as materialized (
    select *, dense_rank() over (order by ordering_key) as key
      from (select ordering_key, id, failed_at from failing where holds and ordering_key is not null
             union
            select ordering_key, id, failed_at from heads
             where failed_at is not null or available_at > statement_timestamp()) as found
), edges as (
    -- Behind such a row its key waits, to the key's end.
    select ordering_key, id, case when failed_at is null then 'later' else 'behind' end as state
      from held where key <= %(keys)s
     union
    select ordering_key, 9223372036854775807, 'due' from held where key <= %(keys)s
     union
    select '', 0, 'due'
     union
    select max(ordering_key), 9223372036854775807, 'due' from outbox_events
     where published_at is null and ordering_key is not null and (failed_at is null or blocks_key)
), spans as materialized (
    -- A row that waits for its next attempt is part of what waits, a failed one is not.
    select case when state = 'later' and bool_or(state = 'behind') over (partition by ordering_key order by id)
                then 'behind' else state end as state,
           ordering_key, id + (state = 'behind')::integer as id,
           lead(ordering_key) over edge as next_key, lead(id) over edge as next_id
      from edges window edge as (order by ordering_key, id)
), counted as materialized (
    select state, (select count(*)
                     from (select from spans cross join lateral (
                                  select from outbox_events
                                   where published_at is null and ordering_key is not null
                                     and (failed_at is null or blocks_key)
                                     and (ordering_key, id) >= (spans.ordering_key, spans.id)
                                     and (ordering_key, id) < (spans.next_key, spans.next_id)
                                  offset 0) as waiting
                            where spans.state = wanted.state limit %(most)s) as found) as rows
      from (values ('due'), ('later'), ('behind')) as wanted (state)
)
select case when is_least then first.rows else due.rows end as due, later.rows as later, behind.rows as behind,
       blocked.keys as blocked, is_least, more_keys,
       coalesce(extract(epoch from statement_timestamp() - first.since), 0)::float8 as oldest_due_seconds,
       coalesce(extract(epoch from statement_timestamp() - blocked.since), 0)::float8 as oldest_blocked_seconds
  from (select count(*) as rows, min(greatest(created_at, available_at)) as since from heads
         where failed_at is null and available_at <= statement_timestamp()) as first
 cross join (select count(distinct key) as keys, min(failed_at) as since from held
              where failed_at is not null) as blocked
 cross join (select (select count(*) from failing) >= %(most)s
                    or exists (select from held where key > %(keys)s) as is_least,
                    (select max(place) from heads) >= %(keys)s as more_keys) as looked
  join counted as due on due.state = 'due' join counted as later on later.state = 'later'
  join counted as behind on behind.state = 'behind'
