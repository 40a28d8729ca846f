-- Counting ends at a limit, so that a look costs the same on a table of any size.
-- Ages are by the database's clock, and begin when a row was there and due: a row that is for later is not old.
-- The first fresh row is the oldest one, because ids ascend with created_at.
--
-- Of a key that is held up, the rows from there on are not due. What holds a key up is rare, and found without walking
-- the key: failed rows behind which it waits, rows that wait for their next attempt, and first rows that are for later.
-- Keys are walked from first row to first row, a limited number of them, however long each of them is.
with recursive unresolved as materialized (
    select id, ordering_key, failure_reason, failed_at, blocks_key
      from outbox_events
     where failed_at is not null and failure_reason <> 'discarded'
     limit %(most)s
), retrying as materialized (
    select id, ordering_key, available_at
      from outbox_events
     where published_at is null and failed_at is null and attempt_count > 0
     limit %(most)s
), walked as (
    (select 1 as place, ordering_key, id, greatest(created_at, available_at) as since, blocks_key,
            available_at > statement_timestamp() as later
       from outbox_events
      where published_at is null and ordering_key is not null and (failed_at is null or blocks_key)
      order by ordering_key, id
      limit 1)
     union all
    select walked.place + 1, first.*
      from walked
     cross join lateral (
           select ordering_key, id, greatest(created_at, available_at), blocks_key,
                  available_at > statement_timestamp()
             from outbox_events
            where published_at is null and ordering_key is not null and (failed_at is null or blocks_key)
              and ordering_key > walked.ordering_key
            order by ordering_key, id
            limit 1) as first
     where walked.place < %(keys)s
), held as materialized (
    select ordering_key, min(id) filter (where blocks) as blocked_from, count(*) filter (where blocks) as blocking,
           min(id) filter (where not blocks) as later_from
      from (select ordering_key, id, true as blocks from unresolved where blocks_key and ordering_key is not null
             union all
            select ordering_key, id, false from retrying
             where ordering_key is not null and available_at > statement_timestamp()
             union all
            select ordering_key, id, false from walked where later and not blocks_key) as holding
     group by ordering_key
), holding as materialized (
    select count(*) filter (where blocked_from is not null) as blocked_keys,
           count(*) filter (where later_from is not null) as later_keys,
           coalesce(sum(blocking), 0)::bigint as blocking,
           (select coalesce(sum(blocking - 1), 0)::bigint
              from (select blocking from held where blocked_from is not null limit %(keys)s) as counted) as blocking_again
      from held
), counted as materialized (
    -- Entries of the index, which a table that was vacuumed need not be read for; those of failed rows are taken off.
    select holding.*,
           (select count(*)
              from (select from outbox_events
                     where published_at is null and ordering_key is not null and (failed_at is null or blocks_key)
                     limit %(most)s + (select blocking from holding)) as found) - blocking as rows,
           (select count(*)
              from (select
                      from (select ordering_key, blocked_from from held
                             where blocked_from is not null limit %(keys)s) as key
                     cross join lateral (
                           select from outbox_events
                            where published_at is null and ordering_key is not null
                              and (failed_at is null or blocks_key)
                              and ordering_key = key.ordering_key and id > key.blocked_from
                           offset 0) as waiting
                     limit %(most)s + (select blocking_again from holding)) as found)
               - blocking_again as behind_blocked,
           (select count(*)
              from (select
                      from (select ordering_key, later_from, coalesce(blocked_from, 9223372036854775807) as upto
                              from held where later_from is not null limit %(keys)s) as key
                     cross join lateral (
                           select from outbox_events
                            where published_at is null and ordering_key is not null
                              and (failed_at is null or blocks_key)
                              and ordering_key = key.ordering_key and id >= key.later_from and id < key.upto
                           offset 0) as waiting
                     limit %(most)s) as found) as later,
           (select count(*) from unresolved) < %(most)s and (select count(*) from retrying) < %(most)s as all_held
      from holding
), known as (
    select *, all_held and behind_blocked < %(most)s and later < %(most)s
              and blocked_keys <= %(keys)s and later_keys <= %(keys)s as all_waiting
      from counted
), ordered as materialized (
    -- What is not held up is due. Only where that says too little are rows counted key by key.
    select *, all_waiting and (rows < %(most)s or rows - behind_blocked - later >= %(most)s / 2) as by_difference,
           (select count(*) from walked) >= %(keys)s as more_keys,
           (select min(since) from walked where not (later or blocks_key)) as since
      from known
), due as materialized (
    select case when by_difference then rows - behind_blocked - later
                else (select count(*)
                        from (select
                                from (select ordering_key, min(first) as first, min(held_from) as held_from
                                        from (select ordering_key, id as first, null::bigint as held_from
                                                from walked where not (later or blocks_key)
                                               union all
                                              select ordering_key, null, least(blocked_from, later_from)
                                                from held) as known
                                       group by ordering_key
                                      having min(first) is not null) as key
                               cross join lateral (
                                     select from outbox_events
                                      where published_at is null and ordering_key is not null
                                        and (failed_at is null or blocks_key)
                                        and ordering_key = key.ordering_key and id >= key.first
                                        and id < coalesce(key.held_from, 9223372036854775807)
                                     offset 0) as ready
                               limit %(most)s) as found) end as rows
      from ordered
)
select fresh.rows as fresh,
       delayed.rows as delayed_due,
       later.rows as scheduled,
       ordered.rows as ordered,
       due.rows as ordered_due,
       case when by_difference then ordered.rows = %(most)s
            else not all_held or more_keys or due.rows = %(most)s end as ordered_due_is_least,
       ordered.later as ordered_later,
       ordered.blocked_keys,
       ordered.behind_blocked,
       not all_held or blocked_keys > %(keys)s or behind_blocked = %(most)s as behind_is_least,
       not all_held as more_held,
       ordered.more_keys,
       retrying.rows as retrying,
       coalesce(extract(epoch from statement_timestamp()
                        - least(oldest_fresh.since, delayed.since, ordered.since)), 0)::float8 as oldest_due_seconds,
       coalesce(extract(epoch from statement_timestamp() - failed.blocked_since), 0)::float8 as oldest_blocked_seconds,
       failed.max_attempts, failed.non_retryable, failed.blocking,
       recent.rows as failed_last_hour
  from (select count(*) as rows
          from (select from outbox_events
                 where published_at is null and failed_at is null and ordering_key is null
                   and available_at = '-infinity'
                 limit %(most)s) as found) as fresh
 cross join (select (select created_at from outbox_events
                      where published_at is null and failed_at is null and ordering_key is null
                        and available_at = '-infinity'
                      order by id limit 1) as since) as oldest_fresh
 cross join (select count(*) as rows, min(since) as since
               from (select greatest(created_at, available_at) as since from outbox_events
                      where published_at is null and failed_at is null and ordering_key is null
                        and available_at > '-infinity' and available_at <= statement_timestamp()
                      order by available_at, id
                      limit %(most)s) as found) as delayed
 cross join (select count(*) as rows
               from (select from outbox_events
                      where published_at is null and failed_at is null and ordering_key is null
                        and available_at > '-infinity' and available_at > statement_timestamp()
                      limit %(most)s) as found) as later
 cross join ordered
 cross join due
 cross join (select count(*) as rows from retrying) as retrying
 cross join (select count(*) filter (where failure_reason = 'max_attempts') as max_attempts,
                    count(*) filter (where failure_reason = 'non_retryable') as non_retryable,
                    count(*) filter (where blocks_key) as blocking,
                    min(failed_at) filter (where blocks_key) as blocked_since
               from unresolved) as failed
 cross join (select count(*) as rows
               from (select from outbox_events
                      where failed_at is not null and failure_reason <> 'discarded'
                        and failed_at > statement_timestamp() - interval '1 hour'
                      limit %(most)s) as found) as recent
