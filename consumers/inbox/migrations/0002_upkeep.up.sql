-- Outbox and inbox share these tables where they share a schema: whichever comes first makes them and owns them, and both
-- at once wait for each other here.
select pg_advisory_xact_lock(1970301797, 1835624306);

do $$
begin
    if exists (select from pg_tables where schemaname = current_schema() and tablename = 'relay_schedule') then
        return;
    end if;

    -- Each job by its name, with the last slot that somebody took; and each walk over a table, with how far it has come.
    create table relay_schedule (
        name       text primary key,
        last_slot  timestamptz,
        position   jsonb,
        updated_at timestamptz not null default clock_timestamp(),

        constraint relay_schedule_name check (char_length(name) between 1 and 200)
    );

    -- Each run of a job: one row when it begins, which its end completes. What stands as running and holds no lock was killed.
    create table relay_runs (
        id          bigint generated always as identity primary key,
        job         text not null,
        slot        timestamptz not null,
        worker      text not null,
        status      text not null default 'running',
        started_at  timestamptz not null default clock_timestamp(),
        finished_at timestamptz,
        counters    jsonb not null default '{}',
        errors      integer not null default 0,
        error_code  text,
        error       text,

        constraint relay_runs_status check (
            status in ('running', 'done', 'failed', 'timed_out', 'cancelled', 'lost', 'killed')),
        constraint relay_runs_finished check ((status = 'running') = (finished_at is null)),
        constraint relay_runs_error check (char_length(error) <= 1024)
    );
    create index relay_runs_of_a_job on relay_runs (job, id);
    create index relay_runs_running on relay_runs (job) where status = 'running';
    create index relay_runs_failed on relay_runs (id)
        where status not in ('running', 'done') or errors > 0;

    -- Each file of archived rows, from the moment that its rows are set aside until they are dropped. No column says where a
    -- file is beyond its name: what holds the files may move.
    create table archive_exports (
        id               bigint generated always as identity primary key,
        origin           text not null,                -- the table that the rows came from, with its schema
        month            date not null,                -- by the age of the rows, in UTC
        part             integer not null,             -- of the month: rows that came later are another part
        sealed           text not null,                -- the table in the schema archive that has exactly these rows
        state            text not null default 'sealed',
        rows             bigint,                       -- of all files, as soon as all are written
        files            jsonb not null default '[]',  -- of each: its name, rows, bytes, sha256 and last key
        sealed_at        timestamptz not null default clock_timestamp(),
        verified_at      timestamptz,
        drop_eligible_at timestamptz,
        dropped_at       timestamptz,
        dropped_by       text,                         -- whoever did not wait until then, and why
        dropped_why      text,

        constraint archive_exports_state check (state in ('sealed', 'verified', 'dropped')),
        constraint archive_exports_verified check (state = 'sealed' or (verified_at is not null and rows is not null)),
        constraint archive_exports_dropped check ((state = 'dropped') = (dropped_at is not null)),
        constraint archive_exports_early check (
            (dropped_by is null) = (dropped_why is null) and (dropped_by is null or state = 'dropped')),
        constraint archive_exports_unique unique (origin, month, part)
    );

    comment on table relay_schedule is 'When jobs last ran, and how far walks over tables have come.';
    comment on table relay_runs is 'Runs of jobs; shown by relay runs.';
    comment on table archive_exports is 'What was exported of the schema archive; shown by relay archive status.';

    alter table relay_runs set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
end
$$;
