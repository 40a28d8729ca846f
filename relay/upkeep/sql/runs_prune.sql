-- What ended before its time is over goes, the oldest first; never what is under way. Its cost is a page, whatever there is.
with page as (
    select id, finished_at from relay_runs where status <> 'running' order by id limit %(rows)s for update skip locked
),
gone as (
    delete from relay_runs
     using page
     where relay_runs.id = page.id
       and page.finished_at < clock_timestamp() + make_interval(secs => %(skew)s::float8 - %(seconds)s::float8)
    returning relay_runs.id
)
select count(*) from gone
