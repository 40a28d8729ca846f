-- An owner's word counts while its token does: what was taken over meanwhile is left as it is, and told.
-- A delivery that a transaction of its handler's holds is not waited for: nobody else's word may wait behind it.
-- No two of these sets are joined: without statistics and hashes that compares each word with each other one.
with said as materialized (
    select *
      from unnest(%(ids)s::bigint[], %(tokens)s::uuid[], %(states)s::text[], %(outcomes)s::text[], %(rests)s::float8[],
                  %(refunds)s::integer[], %(defers)s::integer[], %(cleared)s::boolean[], %(results)s::text[],
                  %(codes)s::text[], %(errors)s::text[], %(tickets)s::text[], %(versions)s::integer[],
                  %(whats)s::text[], %(details)s::text[])
        with ordinality
        as said(id, token, state, outcome, rest, refund, deferred, cleared, result, code, error, ticket, version, what,
                detail, place)
), mine as materialized (
    select said.*
      from said
     cross join lateral (
           select id
             from inbox_deliveries
            where id = said.id and token = said.token and state = 'processing'
              for update skip locked
           ) as held
), changed as (
    update inbox_deliveries as delivery
       set state = mine.state,
           outcome = nullif(mine.outcome, ''),
           available_at = case when mine.state in ('pending', 'sent')
                               then statement_timestamp() + make_interval(secs => %(skew)s::float8 + mine.rest)
                               else delivery.available_at end,
           attempt_count = greatest(0, delivery.attempt_count - mine.refund),
           defer_count = delivery.defer_count + mine.deferred,
           suspect = delivery.suspect and not mine.cleared,
           result = coalesce(nullif(mine.result, '')::jsonb, delivery.result),
           error_code = nullif(mine.code, ''),
           error = nullif(mine.error, ''),
           ticket = coalesce(nullif(mine.ticket, ''), delivery.ticket),
           handler_version = coalesce(mine.version, delivery.handler_version),
           sent_at = case when mine.state = 'sent' then clock_timestamp() + make_interval(secs => %(skew)s)
                          else delivery.sent_at end,
           finished_at = case when mine.state in ('done', 'failed') then clock_timestamp() end
      from mine
     where delivery.id = mine.id
    returning delivery.id, mine.token, mine.what, mine.detail, mine.place
), freed as (
    delete from inbox_leases as lease using changed where lease.delivery_id = changed.id and lease.token = changed.token
), told as (
    insert into inbox_history (delivery_id, what, detail) select id, what, nullif(detail, '')::jsonb from changed
)
select place, 'settled' from changed
union all
select place,
       coalesce((select case when delivery.token is distinct from said.token then 'lost'
                             when delivery.state = 'processing' then 'held'
                             when delivery.state in ('done', 'failed', 'sent') then 'settled before'
                             else 'lost' end
                   from inbox_deliveries as delivery
                  where delivery.id = said.id), 'lost')
  from said
 where place not in (select place from changed)
