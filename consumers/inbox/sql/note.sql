-- What happens to a delivery is noted by its owner alone. Where a transaction holds the row its stage is not waited for;
-- the history, which nobody holds, has it all the same.
with said as materialized (
    select *
      from unnest(%(ids)s::bigint[], %(tokens)s::uuid[], %(whats)s::text[], %(details)s::text[], %(staged)s::boolean[],
                  %(stages)s::text[], %(progresses)s::real[])
        as said(id, token, what, detail, staged, stage, progress)
), ours as materialized (
    select said.*
      from said
     cross join lateral (
           select from inbox_deliveries where id = said.id and token = said.token and state = 'processing'
           ) as held
), free as materialized (
    select ours.*
      from ours
     cross join lateral (
           select id
             from inbox_deliveries
            where id = ours.id and token = ours.token and state = 'processing' and (ours.staged or ours.progress is not null)
              for update skip locked
           ) as held
), shown as (
    update inbox_deliveries as delivery
       set stage = case when free.staged then nullif(free.stage, '') else delivery.stage end,
           progress = coalesce(free.progress, delivery.progress)
      from free
     where delivery.id = free.id
), told as (
    insert into inbox_history (delivery_id, what, detail) select id, what, detail::jsonb from ours
)
select id from ours
