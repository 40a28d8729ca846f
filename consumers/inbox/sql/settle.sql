-- An owner's word counts while its token does: what was taken over meanwhile is left as it is, and told.
-- A delivery that a transaction of its handler's holds is not waited for: nobody else's word may wait behind it.
with said as materialized (
    select *
      from unnest(%(ids)s::bigint[], %(tokens)s::uuid[], %(states)s::text[], %(outcomes)s::text[], %(rests)s::float8[],
                  %(refunds)s::integer[], %(defers)s::integer[], %(cleared)s::boolean[], %(results)s::text[],
                  %(codes)s::text[], %(errors)s::text[], %(tickets)s::text[], %(versions)s::integer[],
                  %(whats)s::text[], %(details)s::text[])
        as said(id, token, state, outcome, rest, refund, deferred, cleared, result, code, error, ticket, version, what,
                detail)
), mine as materialized (
    select held.id
      from said
     cross join lateral (
           select id
             from inbox_deliveries
            where id = said.id and token = said.token and state = 'processing'
              for update skip locked
           ) as held
), changed as (
    update inbox_deliveries as delivery
       set state = said.state,
           outcome = nullif(said.outcome, ''),
           available_at = case when said.state in ('pending', 'sent')
                               then statement_timestamp() + make_interval(secs => %(skew)s::float8 + said.rest) else delivery.available_at end,
           attempt_count = greatest(0, delivery.attempt_count - said.refund),
           defer_count = delivery.defer_count + said.deferred,
           suspect = delivery.suspect and not said.cleared,
           result = coalesce(nullif(said.result, '')::jsonb, delivery.result),
           error_code = nullif(said.code, ''),
           error = nullif(said.error, ''),
           ticket = coalesce(nullif(said.ticket, ''), delivery.ticket),
           handler_version = coalesce(said.version, delivery.handler_version),
           sent_at = case when said.state = 'sent' then clock_timestamp() else delivery.sent_at end,
           finished_at = case when said.state in ('done', 'failed') then clock_timestamp() end
      from mine
      join said using (id)
     where delivery.id = mine.id
    returning delivery.id, said.token, said.what, said.detail
), freed as (
    delete from inbox_leases as lease using changed where lease.delivery_id = changed.id and lease.token = changed.token
), told as (
    insert into inbox_history (delivery_id, what, detail) select id, what, nullif(detail, '')::jsonb from changed
)
select said.id,
       case when changed.id is not null then 'settled'
            else coalesce((select case when delivery.token is distinct from said.token then 'lost'
                                       when delivery.state = 'processing' then 'held'
                                       when delivery.state in ('done', 'failed', 'sent') then 'settled before'
                                       else 'lost' end
                             from inbox_deliveries as delivery
                            where delivery.id = said.id), 'lost') end
  from said
  left join changed on changed.id = said.id
