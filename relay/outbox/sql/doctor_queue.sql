-- How long the oldest row has been due, by the database's clock, and failed rows up to a limit. Found by index.
select extract(epoch from statement_timestamp() - least(
           (select created_at from outbox_events
             where published_at is null and failed_at is null and ordering_key is null
               and available_at = '-infinity'
             order by id limit 1),
           (select greatest(created_at, available_at) from outbox_events
             where published_at is null and failed_at is null and ordering_key is null
               and available_at > '-infinity' and available_at <= statement_timestamp()
             order by available_at, id limit 1)))::float8 as oldest_due_seconds,
       (select count(*) from (select from outbox_events
                               where failed_at is not null and failure_reason <> 'discarded'
                               limit %(most)s) as found) as failed
