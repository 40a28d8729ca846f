-- What ended long ago goes together with its history, and the walk goes on with it, or nothing of that happens.
-- Rows are seen in the order of the primary key, each of them once in a round; what somebody holds is left to the next.
-- Nothing has ended before it was created: a page that reaches what was created since is the last one of its round.
with mine as materialized (
    select (position ->> 'after')::bigint as after
      from inbox_checkpoints
     where consumer = %(consumer)s and name = %(name)s and position = %(before)s::text::jsonb
       for update
), page as materialized (
    select next.*
      from mine
     cross join lateral (
           select id, created_at,
                  consumer = %(consumer)s and (state = 'done' or outcome = 'discarded')
                  and finished_at < to_timestamp(%(cutoff)s::float8) as is_over
             from inbox_deliveries
            where id > mine.after
            order by id
            limit %(rows)s
           ) as next
), ended as materialized (
    select count(*) as read, max(id) as last, coalesce(max(created_at) >= to_timestamp(%(cutoff)s::float8), true) as is_young
      from page
), held as materialized (
    select found.id
      from page
     cross join lateral (
           select id
             from inbox_deliveries
            where id = page.id and (state = 'done' or outcome = 'discarded')
              and finished_at < to_timestamp(%(cutoff)s::float8)
              for update skip locked
           ) as found
     where page.is_over
), gone as (
    delete from inbox_deliveries as delivery using held where delivery.id = held.id
    returning delivery.id
), forgotten as (
    delete from inbox_history as entry using gone where entry.delivery_id = gone.id
), moved as (
    update inbox_checkpoints as walk
       set position = walk.position || jsonb_build_object('after', coalesce(ended.last, mine.after)),
           finished = ended.read < %(rows)s or ended.is_young,
           updated_at = statement_timestamp() + make_interval(secs => %(skew)s)
      from mine, ended
     where walk.consumer = %(consumer)s and walk.name = %(name)s
    returning walk.position::text, walk.finished
)
select moved.position, moved.finished, ended.read, (select count(*) from gone) from moved cross join ended
