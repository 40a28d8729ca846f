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

-- All reports are read, and nothing is on its way.
create view settled as
select (select count(*) from sources) = 3
       and not exists (select from outbox_events where published_at is null)
       and not exists (select from inbox_deliveries where state not in ('done', 'failed')) as is_so;

create view outcomes as
select outcome, count(*) from inbox_deliveries where recipient <> '' group by outcome;

-- A job of the night is due; and all is older by so much, but what came first by one month more.
create procedure later(job text, age interval) language sql as $$
  insert into relay_schedule (name, last_slot) values (job, now() - interval '2 days')
      on conflict (name) do update set last_slot = excluded.last_slot;
  update sources set read_at = read_at - age - case when service = 'coast' then interval '1 month' else '0' end;
$$;
