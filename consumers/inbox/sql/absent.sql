-- Which of these events the inbox does not have; nothing is written.
select asked.event_id::text
  from unnest(%(event_ids)s::uuid[]) as asked(event_id)
 where not exists (
       select from inbox_deliveries where consumer = %(consumer)s and event_id = asked.event_id
       )
