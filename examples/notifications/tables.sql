-- What was read, and from whom: each report once, by its natural key.
create table sources (
  service text not null,
  number  text not null,
  storm   text not null,
  read_at timestamptz not null default now(),
  primary key (service, number)
);

-- Several services may tell of one.
create table storms (
  storm       text primary key,
  region      text not null,
  title       text not null,
  notified_at timestamptz  -- set as its first push is sent; no receipt takes it back
);

create table phones (
  token  text primary key,
  region text not null,
  muted  boolean not null default false,
  active boolean not null default true
);
create index on phones (region) where active;

-- What follows is for the example alone. How a token begins is what the provider says of its phone, at once or later.
insert into phones (token, region, muted)
select said || '.' || region || '.' || n, region, said = 'muted'
  from unnest('{ok, again, gone, never, later-ok, later-again, later-gone, later-never, later-silent, muted}'::text[])
       as said,
       unnest('{north, south}'::text[]) as region,
       generate_series(1, 3) as n;

-- The job whose time has come; and a row where it is done, and nothing is on its way.
create table due (job text not null);
create view settled as
select from due join relay_schedule on name = job join relay_runs using (job)
 where slot = last_slot and status = 'done'
   and (select count(*) from storms) = 2
   and not exists (select from outbox_events where published_at is null)
   and not exists (select from inbox_deliveries
                    where state not in ('done', 'failed') or state = 'done' and finished_at < now() - interval '90 days');

create view found as
select outcome, count(*) from inbox_deliveries where recipient <> '' group by outcome
union all
select regexp_replace(origin, '^public[.](inbox_)?', '') || ' in files', rows from archive_exports
 where state = 'dropped' and origin ~ 'sources|deliveries';

-- What a job has done, in words. The numbers are of deliveries: what became of a push to one phone.
create function told(job text, later text) returns text language sql as $$
  select case when later <> '0' then later || ' later, ' else '' end || case job
    when 'ingest' then format(
      'ingest: %s reports of %s storms were read; of the deliveries to phones %s. The errors above are of those that '
      'are invalid (no such phone), dead (refused) and unknown (no receipt)',
      (select count(*) from sources), (select count(*) from storms),
      (select string_agg(count || ' are ' || outcome, ', ' order by outcome) from found))
    when 'clean_up' then format(
      'clean_up: %s reports are in the schema archive, and all deliveries but %s that have failed',
      (select sum((counters ->> 'moved:public.sources')::int) from relay_runs where relay_runs.job = told.job),
      (select count(*) from inbox_deliveries))
    else (
      select format('archive: %s rows are in files, of %s tables of a month each; %s of these tables are dropped',
                    sum(rows), count(*), count(*) filter (where state = 'dropped'))
        from archive_exports) end
$$;

-- A job is due, and what there is is older by so much; by a month more where it is of the coast, or of the north.
create procedure later(job text, age interval, more interval) language sql as $$
  delete from due;
  insert into due (job) values (job);
  update relay_runs set slot = slot - interval '2 days' where relay_runs.job = later.job;
  insert into relay_schedule (name, last_slot) values (job, now() - interval '2 days')
      on conflict (name) do update set last_slot = excluded.last_slot;
  update archive_exports set drop_eligible_at = drop_eligible_at - age;
  update inbox_checkpoints set updated_at = updated_at - age;
  update sources set read_at = read_at - age - (service = 'coast')::int * more;
  update inbox_history set at = at - age - (attributes ->> 'aggregate_id' ~ 'north')::int * more
    from inbox_deliveries where inbox_deliveries.id = delivery_id;
  update inbox_deliveries set created_at = created_at - age,
         finished_at = finished_at - age - (attributes ->> 'aggregate_id' ~ 'north')::int * more;
$$;
