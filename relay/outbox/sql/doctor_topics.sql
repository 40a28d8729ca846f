-- The topics that the oldest pending rows name themselves.
select distinct topic
  from (select topic from outbox_events
         where published_at is null and failed_at is null and ordering_key is null and available_at = '-infinity'
         order by id limit %(most)s) as oldest
 where topic is not null
 order by topic
