-- Who is answered with wants the push now, and its storm is flagged: what becomes of the push does not take that back.
with wanted as (
    select distinct token, storm
      from unnest(%(tokens)s::text[], %(storms)s::text[]) as asked (token, storm) join phones using (token)
     where active and not muted
), unflagged as (
    select storm from storms
     where notified_at is null and storm in (select storm from wanted)
     order by storm
       for update
), flagged as (
    update storms set notified_at = now() from unflagged where storms.storm = unflagged.storm
)
select token from wanted
