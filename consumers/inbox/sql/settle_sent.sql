-- A verdict counts while its asker's token does and the delivery is still sent; what others hold is not waited for.
-- No two of these sets are joined: without statistics and hashes that compares each verdict with each other one.
with said as materialized (
    select *
      from unnest(%(ids)s::bigint[], %(tokens)s::uuid[], %(states)s::text[], %(outcomes)s::text[], %(rests)s::float8[],
                  %(codes)s::text[], %(errors)s::text[], %(whats)s::text[], %(details)s::text[])
        as said(id, token, state, outcome, rest, code, error, what, detail)
), mine as materialized (
    select said.*
      from said
     cross join lateral (
           select id
             from inbox_deliveries
            where id = said.id and token = said.token and state = 'sent'
              for update skip locked
           ) as held
), changed as (
    update inbox_deliveries as delivery
       set state = mine.state,
           outcome = nullif(mine.outcome, ''),
           available_at = case when mine.state in ('pending', 'sent')
                               then statement_timestamp() + make_interval(secs => %(skew)s::float8 + mine.rest)
                               else delivery.available_at end,
           error_code = nullif(mine.code, ''),
           error = nullif(mine.error, ''),
           finished_at = case when mine.state in ('done', 'failed') then clock_timestamp() end
      from mine
     where delivery.id = mine.id
    returning delivery.id, mine.what, mine.detail
), told as (
    insert into inbox_history (delivery_id, what, detail)
    select id, what, nullif(detail, '')::jsonb from changed where what <> ''
)
select id from changed
