-- A relay that has nothing to do sleeps, and holds an advisory lock for as long: (2002873189, the table's oid), of which
-- the first is 'wake' in ASCII. Emitting notifies only while somebody holds it: a NOTIFY takes a lock of the whole
-- database at the commit, which many writers would queue up at.

-- Names are written out and no setting is made: this runs with every insert.
create function outbox_notify() returns trigger
language plpgsql volatile
as $$
begin
    -- One expression: a statement that is cancelled ends before it or after it, and never keeps the lock.
    if (case when pg_catalog.pg_try_advisory_lock_shared(2002873189, tg_relid::pg_catalog.int4)
             then not pg_catalog.pg_advisory_unlock_shared(2002873189, tg_relid::pg_catalog.int4)
             else true end)
    then
        perform pg_catalog.pg_notify(pg_catalog.concat('outbox_', tg_relid), '');
    end if;
    return null;
end
$$;

-- Once a statement, however many rows it stores.
create trigger outbox_events_wake after insert on outbox_events
    for each statement execute function outbox_notify();

-- For whoever makes rows due by other means than storing them: wakes the relays in any case, at the commit.
create function outbox_wake() returns void
language sql volatile
set search_path from current
as $$
    select pg_notify('outbox_' || 'outbox_events'::regclass::oid, 'wake')
$$;

-- Ids that begin anew stand below what a relay believes to have seen: it has to look from the first one.
create function outbox_truncated() returns trigger
language plpgsql volatile
as $$
begin
    perform pg_catalog.pg_notify(pg_catalog.concat('outbox_', tg_relid), 'wake');
    return null;
end
$$;

create trigger outbox_events_truncated after truncate on outbox_events
    for each statement execute function outbox_truncated();

-- Rows with a key that are put off or were retried, and those that failed again after that. A retried row may be older
-- than all that waits: whoever looks above some id looks here for what stands below it. Empty while nothing fails.
create index outbox_events_put_off on outbox_events (id)
    where published_at is null and ordering_key is not null and (failed_at is null or blocks_key)
      and available_at > '-infinity';

comment on function outbox_wake() is 'Wakes relays that sleep, at the commit. Storing events does so by itself.';
