-- One operator acts on a row: it is locked, and it is still as it was when it was chosen.
-- What was redacted since then is nothing that could be published.
-- In the order of ids, so that two operators never wait for each other in a circle.
select id, failed_at::text, failure_reason
  from outbox_events
 where id = any(%(ids)s::bigint[]) and failed_at is not null
   and case when aggregate_id = '(forgotten)' then not payload ? 'redacted' else true end
 order by id
   for update
