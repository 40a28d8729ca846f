-- So many rows are read at either end of each kind of pending rows, whatever the backlog: fresh, put off, in order.
-- A topic that is named only by rows between the ends is not found; no index holds topics.
select distinct topic
  from ((select topic from outbox_events
          where published_at is null and failed_at is null and ordering_key is null and available_at = '-infinity'
          order by id limit %(most)s)
        union all
        (select topic from outbox_events
          where published_at is null and failed_at is null and ordering_key is null and available_at = '-infinity'
          order by id desc limit %(most)s)
        union all
        (select topic from outbox_events
          where published_at is null and failed_at is null and ordering_key is null and available_at > '-infinity'
          order by available_at, id limit %(most)s)
        union all
        (select topic from outbox_events
          where published_at is null and failed_at is null and ordering_key is null and available_at > '-infinity'
          order by available_at desc, id desc limit %(most)s)
        union all
        (select topic from outbox_events
          where published_at is null and ordering_key is not null and (failed_at is null or blocks_key)
            and failed_at is null
          order by ordering_key, id limit %(most)s)
        union all
        (select topic from outbox_events
          where published_at is null and ordering_key is not null and (failed_at is null or blocks_key)
            and failed_at is null
          order by ordering_key desc, id desc limit %(most)s)) as looked_at
 where topic is not null
 order by topic
