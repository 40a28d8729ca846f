-- All that is known of one delivery; its envelope is read for people where they ask for it, and nowhere else.
select id, consumer, event_id::text, recipient, event_type, event_version, sequence, ordering_key, shard, message_id,
       case when state = 'failed' and outcome = 'discarded' then 'discarded' else state end as state, outcome,
       attempt_count, stale_count, defer_count, suspect, error_code, error,
       case when state = 'processing' then locked_by end as locked_by,
       (select expires_at::text
          from inbox_leases as lease
         where lease.delivery_id = delivery.id and lease.token = delivery.token and delivery.state = 'processing'
       ) as lease_until,
       case when state in ('pending', 'sent') then available_at::text end as due_at,
       handler_version, stage, progress, ticket, awaited, result::text as result, attributes::text as attributes,
       created_at::text, first_started_at::text, started_at::text, sent_at::text, finished_at::text,
       case when %(envelope)s::boolean then envelope::text end as envelope
  from inbox_deliveries as delivery
 where id = %(id)s::bigint
