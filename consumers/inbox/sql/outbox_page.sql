-- Each event is looked at once, in the order of ids, and only what may be missing is read: of the types asked for, to be
-- published or published, due, neither discarded nor forgotten, and not so old that it may have been cleaned away.
-- A page ends behind the event with which it has enough bytes. One line for a page without any: where it ended.
with next as materialized (
    select id, size_bytes, payload, attributes, event_id, event_type, aggregate_type, aggregate_id, ordering_key,
           message_id, created_at,
           case when not (event_type = any (%(types)s::text[])
                          or exists (select from unnest(%(beginnings)s::text[]) as beginning
                                      where starts_with(event_type, beginning))) then 'other'
                when failure_reason = 'discarded' or (aggregate_id = '(forgotten)' and payload ? 'redacted') then 'given up'
                when created_at < to_timestamp(%(floor)s::float8) then 'too old'
                when published_at is null and failed_at is null and available_at > statement_timestamp() then 'not due'
                else 'meant' end as kind
      from outbox_events
     where id > %(after)s and id <= %(newest)s
     order by id
     limit %(rows)s
), page as materialized (
    select next.*,
           coalesce(sum(case when kind = 'meant' then size_bytes end)
                    over (order by id rows between unbounded preceding and 1 preceding), 0) as bytes_before
      from next
), kept as materialized (
    select * from page where bytes_before < %(bytes)s
)
select ended.read, ended.last, ended.given_up, ended.too_old, ended.not_due,
       meant.id, meant.event_id::text, meant.event_type, meant.aggregate_type, meant.aggregate_id,
       coalesce(meant.ordering_key, ''), coalesce(meant.message_id, ''),
       to_char(meant.created_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), meant.payload, meant.attributes
  from (select count(*) as read, max(id) as last,
               count(*) filter (where kind = 'given up') as given_up,
               count(*) filter (where kind = 'too old') as too_old,
               count(*) filter (where kind = 'not due') as not_due
          from kept) as ended
  left join (select * from kept where kind = 'meant') as meant on true
