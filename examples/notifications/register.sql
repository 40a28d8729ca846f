-- A report is kept once, by its natural key; the storm of a new one is as that says, and is answered with.
with report as (
    select distinct on (number) number, storm, region, title
      from jsonb_to_recordset(%(reports)s) as report (number text, storm text, region text, title text)
     order by number
), new as (
    insert into sources (service, number, storm)
    select %(service)s, number, storm from report
        on conflict do nothing
    returning number
)
insert into storms (storm, region, title)
select distinct on (storm) storm, region, title from report join new using (number)
 order by storm, number desc
    on conflict (storm) do update set region = excluded.region, title = excluded.title
returning storm, jsonb_build_object('region', region, 'title', title)
