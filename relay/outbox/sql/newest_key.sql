-- The row that is answered is the first one that waits of its key: nothing of the key stands before it.
-- What came last to a topic shows best whether it takes anything again: of the newest rows, the last one of the topic
-- that waits with a key tells the key.
select newest.ordering_key, 1 as rows, array[head.id] as ids
  from (select ordering_key
          from (select id, ordering_key, topic, event_type, published_at, failed_at
                  from outbox_events order by id desc limit 1000) as latest
         where published_at is null and failed_at is null and ordering_key is not null
           and coalesce(topic = %(topic)s, event_type = any (%(types)s::text[]))
         order by id desc
         limit 1) as newest
 cross join lateral (
       select id from outbox_events
        where published_at is null and ordering_key is not null and (failed_at is null or blocks_key)
          and ordering_key = newest.ordering_key
        order by id
        limit 1) as head
