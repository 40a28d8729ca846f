-- Each row is looked at once, in the order of the primary key, and nothing is read of it but what it is about: no index
-- knows the aggregate, and none is to, for every emit would pay for it. A redacted row is about nobody.
-- One line for a page without any row that is meant: where it ended.
with page as materialized (
    select id,
           case when (aggregate_type, aggregate_id) in (
                         select type, id from unnest(%(types)s::text[], %(ids)s::text[]) as meant (type, id))
                     and not case when aggregate_id = '(forgotten)' then payload ? 'redacted' else false end
                then case when published_at is not null then 'published'
                          when failed_at is null then 'pending'
                          when failure_reason = 'discarded' then 'discarded'
                          else 'failed' end end as state
      from outbox_events
     where id > %(after)s and id <= %(newest)s
     order by id
     limit %(rows)s
)
select ended.read, ended.last, meant.id, meant.state
  from (select count(*) as read, max(id) as last from page) as ended
  left join (select id, state from page where state is not null) as meant on true
 order by meant.id
