-- What an older revision of a handler has ended, in the order of the primary key, each row once and without a lock: no
-- index knows what is done, and none is to, for every delivery would pay for it.
-- One line for a page without any such row: where it ended.
with page as materialized (
    select id, event_type, event_version,
           consumer = %(consumer)s and state in ('done', 'failed') and outcome <> 'discarded'
           and coalesce(handler_version, 0) < %(revision)s
           and case when %(exact)s then event_type = %(event_type)s else starts_with(event_type, %(event_type)s) end
               as is_meant
      from inbox_deliveries
     where id > %(after)s and id <= %(newest)s
     order by id
     limit %(rows)s
)
select ended.read, ended.last, meant.id, meant.event_type, meant.event_version
  from (select count(*) as read, max(id) as last from page) as ended
  left join (select id, event_type, event_version from page where is_meant) as meant on true
