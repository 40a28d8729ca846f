-- Counting ends at a limit, so that a look costs the same on a table of any size.
-- Ages are by the database's clock, and begin when a row was there and due: a row that is for later is not old.
-- The first fresh row is the oldest one, because ids ascend with created_at.
-- Of rows with an ordering key those that failed or are retried are counted here, what waits in keys by keys.sql.
select fresh.rows as fresh,
       delayed.rows as delayed_due,
       later.rows as scheduled,
       retrying.rows as retrying,
       failed.max_attempts, failed.non_retryable, failed.blocking,
       recent.rows as failed_last_hour,
       coalesce(extract(epoch from statement_timestamp()
                        - least(oldest_fresh.since, delayed.since)), 0)::float8 as oldest_unordered_seconds
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
 cross join (select count(*) as rows
               from (select from outbox_events
                      where published_at is null and failed_at is null and attempt_count > 0
                      limit %(most)s) as found) as retrying
 cross join (select count(*) filter (where failure_reason = 'max_attempts') as max_attempts,
                    count(*) filter (where failure_reason = 'non_retryable') as non_retryable,
                    count(*) filter (where blocks_key) as blocking
               from (select failure_reason, blocks_key from outbox_events
                      where failed_at is not null and failure_reason <> 'discarded'
                      limit %(most)s) as found) as failed
 cross join (select count(*) as rows
               from (select from outbox_events
                      where failed_at is not null and failure_reason <> 'discarded'
                        and failed_at > statement_timestamp() - interval '1 hour'
                      limit %(most)s) as found) as recent
