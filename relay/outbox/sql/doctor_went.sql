-- Where the newest rows went lately tells who takes from this outbox, whatever is written down elsewhere.
select coalesce(bool_or(message_id = %(moved)s), false) as into_inbox,
       coalesce(bool_or(message_id <> %(moved)s), false) as to_broker
  from (select message_id, published_at from outbox_events order by id desc limit 1000) as newest
 where published_at > statement_timestamp() - interval '1 hour'
