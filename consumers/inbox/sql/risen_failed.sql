-- What an older revision of a handler has failed, but for what may have been sent all the same; in the order of ids, each
-- row once and without a lock.
-- Compared as a pair, by which no other index finds it: the primary key would lead past all that is done.
-- One line for a page without any such row: where it ended.
with page as materialized (
    select id, event_type, event_version,
           coalesce(handler_version, 0) < %(revision)s
           and case when %(exact)s then event_type = %(event_type)s else starts_with(event_type, %(event_type)s) end
               as is_meant
      from inbox_deliveries
     where state = 'failed' and outcome <> 'discarded' and outcome <> 'unknown'
       and (consumer, id) > (%(consumer)s, %(after)s) and (consumer, id) <= (%(consumer)s, %(newest)s)
     order by consumer, id
     limit %(rows)s
)
select ended.read, ended.last, meant.id, meant.event_type, meant.event_version
  from (select count(*) as read, max(id) as last from page) as ended
  left join (select id, event_type, event_version from page where is_meant) as meant on true
