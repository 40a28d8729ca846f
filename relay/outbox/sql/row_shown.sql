-- The one statement that reads a payload for people. How many rows of its key wait behind it is counted to a limit.
-- A pending row waits behind the first of its key that failed and blocks it, or is put off; looked for as deep.
select jsonb_pretty(payload) as payload, attributes::text as attributes, dedup_key,
       nullif(available_at, '-infinity')::text as available_at, published_at::text, message_id, size_bytes,
       case when blocks_key then (
           select count(*)
             from (select from outbox_events as behind
                    where behind.published_at is null and behind.ordering_key is not null
                      and (behind.failed_at is null or behind.blocks_key)
                      and behind.ordering_key = event.ordering_key and behind.id > event.id
                    limit %(most)s) as found) end as rows_behind,
       held.id as held_up_by, held.why as held_up_why, held.until as held_up_until
  from outbox_events as event
  left join lateral (
       select before.id, case when failed_at is null then 'put off' else 'blocked' end as why,
              case when failed_at is null then before.available_at::text end as until
         from (select id, failed_at, available_at
                 from outbox_events
                where published_at is null and ordering_key is not null and (failed_at is null or blocks_key)
                  and ordering_key = event.ordering_key and id < event.id
                  and event.published_at is null and event.failed_at is null
                order by id limit %(most)s) as before
        where failed_at is not null or available_at > statement_timestamp()
        order by id limit 1) as held on true
 where event.id = %(id)s
