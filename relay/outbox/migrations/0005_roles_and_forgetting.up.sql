-- Time-ordered like outbox_uuid7(moment), with a tail of the caller's: the next after one that was drawn at random for all
-- of a statement (RFC 9562, 6.2). Drawing one for each was the dearest part of storing many.
create function outbox_uuid7(moment timestamptz, tail bigint) returns uuid
language sql stable parallel safe
as $$
    select encode(
        int8send(
            (date_part('epoch', moment) * 1000000)::bigint / 1000 << 16
            | x'7000'::bigint
            | (date_part('epoch', moment) * 1000000)::bigint % 1000 * 4096 / 1000)
        || int8send(x'8000000000000000'::bigint | (tail & x'3fffffffffffffff'::bigint)), 'hex')::uuid
$$;

-- What travels, as JSON.
create function outbox_envelope(event jsonb, event_id uuid, occurred_at timestamptz) returns jsonb
language sql stable parallel safe
as $$
    select jsonb_build_object(
        'event_id', event_id,
        'event_type', event -> 'event_type',
        'version', coalesce(nullif(event -> 'version', 'null'), '1'),
        'occurred_at', to_char(occurred_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
        'actor', event -> 'actor',
        'data', event -> 'data')
$$;

-- What was in the way of an event that could not be stored: the event that has its dedup_key. Anything else is refused.
create function outbox_taken(wanted uuid, wanted_key text, out event_id uuid, out sequence bigint)
language plpgsql volatile
as $$
begin
    -- A statement of its own: its snapshot sees the event that was committed while the insert waited for it.
    select first.event_id, first.id into event_id, sequence
    from outbox_events as first where first.dedup_key = wanted_key;
    if sequence is not null then
        return;
    end if;
    if exists (select from outbox_events as taken where taken.event_id = wanted) then
        raise exception using
            errcode = 'unique_violation',
            message = format('outbox_emit: the event %s is in the outbox already', wanted);
    end if;
    if wanted_key is null then
        raise exception using
            errcode = 'object_not_in_prerequisite_state',
            message = format('outbox_emit: the event %s met a row that it cannot see, or an id that is taken', wanted),
            hint = 'Is the identity of outbox_events.id behind its greatest id? Then set it forward.';
    end if;
    raise exception using
        errcode = 'serialization_failure',
        message = format('outbox_emit: the event with dedup_key %s was removed meanwhile', wanted_key),
        hint = 'Run the transaction again.';
end
$$;

-- Stores the events in the order of the array and answers in that order. An event whose dedup_key is taken answers with
-- the event that took it. Whoever may execute this stores events with the rights of the outbox's owner, and needs none on
-- the table: its search_path is fixed.
create or replace function outbox_emit(events jsonb)
returns table (event_id uuid, sequence bigint, inserted boolean)
language plpgsql volatile security definer
set search_path from current
as $$
#variable_conflict use_column
declare
    bucket integer;
    answer record;
    event jsonb;
    fault text;
    now timestamptz;
    tail bigint;
    last_inserted bigint := 0;
begin
    if jsonb_typeof(events) is distinct from 'array' then
        raise exception using
            errcode = 'invalid_parameter_value',
            message = format('outbox_emit: takes an array of events, not %s', coalesce(jsonb_typeof(events), 'null'));
    end if;

    -- An id is never drawn before its transaction has an xid: the relay tells by xids which ids may still appear.
    perform pg_current_xact_id();

    -- Events of one key commit in the order of their ids: from here to the commit, one transaction a bucket.
    -- Sorted, so that two bulk emits never wait for each other in a circle. 1869968482 is 'outb' in ASCII.
    if events @? '$[*].ordering_key ? (@ != null)' then
        for bucket in
            select distinct hashtext(item ->> 'ordering_key') & 1023
            from jsonb_array_elements(events) as item
            where item ->> 'ordering_key' is not null and item -> 'order_lock' is distinct from 'false'
            order by 1
        loop
            perform pg_advisory_xact_lock(1869968482, bucket);
        end loop;
    end if;

    -- One alone, as most are: the same as below, without what a statement over many costs.
    if jsonb_array_length(events) = 1 then
        event := events -> 0;
        fault := outbox_fault(event);
        if fault is not null then
            perform outbox_refuse(0, fault);
        end if;
        now := clock_timestamp();
        event_id := coalesce((event ->> 'event_id')::uuid, outbox_uuid7(now));
        insert into outbox_events (event_id, event_type, aggregate_type, aggregate_id, topic, ordering_key,
                                   dedup_key, payload, attributes, available_at)
        values (event_id, event ->> 'event_type', event ->> 'aggregate_type', event ->> 'aggregate_id',
                event ->> 'topic', event ->> 'ordering_key', event ->> 'dedup_key',
                outbox_envelope(event, event_id, coalesce((event ->> 'occurred_at')::timestamptz, now)),
                coalesce(nullif(event -> 'attributes', 'null'), '{}'),
                coalesce((event ->> 'available_at')::timestamptz, '-infinity'))
        on conflict do nothing
        returning id into sequence;
        inserted := sequence is not null;
        if not inserted then
            select taken.event_id, taken.sequence into event_id, sequence
            from outbox_taken(event_id, event ->> 'dedup_key') as taken;
        end if;
        return next;
        return;
    end if;

    -- With room for an array of any length.
    tail := hashtextextended(gen_random_uuid()::text, 0) >> 2;
    for answer in
        with checked as materialized (
            select position, item, clock_timestamp() as now, outbox_fault(item) as fault
            from jsonb_array_elements(events) with ordinality as e (item, position)
        ), input as materialized (
            select position, item, event_id, item ->> 'dedup_key' as dedup_key,
                   outbox_envelope(item, event_id, coalesce((item ->> 'occurred_at')::timestamptz, now)) as payload,
                   coalesce(nullif(item -> 'attributes', 'null'), '{}') as attributes
            from (
                select position, item, now,
                       coalesce((item ->> 'event_id')::uuid, outbox_uuid7(now, tail + position)) as event_id
                from checked
                where case when fault is null then true else outbox_refuse(position - 1, fault) end
            ) as sound
        ), stored as (
            insert into outbox_events (event_id, event_type, aggregate_type, aggregate_id, topic, ordering_key,
                                       dedup_key, payload, attributes, available_at)
            select event_id, item ->> 'event_type', item ->> 'aggregate_type', item ->> 'aggregate_id', item ->> 'topic',
                   item ->> 'ordering_key', dedup_key, payload, attributes,
                   coalesce((item ->> 'available_at')::timestamptz, '-infinity')
            from input
            order by position
            -- Of either key: two that emit one event at once may meet at its event_id before they do at its dedup_key.
            on conflict do nothing
            returning event_id, dedup_key, id
        )
        select input.event_id, stored.id, input.dedup_key
        from input
        left join stored on stored.event_id = input.event_id and stored.dedup_key is not distinct from input.dedup_key
        order by position
    loop
        event_id := answer.event_id;
        sequence := answer.id;
        -- One event twice in the array finds its row twice; ids ascend, so the first to find it stored it.
        inserted := coalesce(answer.id > last_inserted, false);
        if inserted then
            last_inserted := answer.id;
        elsif answer.dedup_key is null or sequence is null then
            select taken.event_id, taken.sequence into event_id, sequence
            from outbox_taken(answer.event_id, answer.dedup_key) as taken;
        end if;
        return next;
    end loop;
end
$$;

-- Those who could insert may execute; nobody else.
revoke execute on function outbox_emit(jsonb) from public;
do $$
declare
    emitter record;
begin
    for emitter in
        select distinct case grantee when 0 then 'public' else format('%I', pg_get_userbyid(grantee)) end as name
          from (select (aclexplode(relacl)).* from pg_class where oid = 'outbox_events'::regclass
                 union all
                select (aclexplode(attacl)).* from pg_attribute where attrelid = 'outbox_events'::regclass) as granted
         where privilege_type = 'INSERT'
    loop
        execute format('grant execute on function outbox_emit(jsonb) to %s', emitter.name);
    end loop;
end
$$;

-- Rows that are forgotten were published, as a rule, and had not failed; those that had neither were never published.
alter table outbox_actions
    add column published_at timestamptz,
    alter failed_at drop not null,
    alter failure_reason drop not null,
    drop constraint outbox_actions_action,
    drop constraint outbox_actions_why,
    add constraint outbox_actions_action check (action in ('retry', 'discard', 'remove', 'redact')),
    add constraint outbox_actions_why check (
        char_length(why) between 1 and 1024 and (action = 'retry' or why is not null)),
    add constraint outbox_actions_state check (
        (failed_at is null) = (failure_reason is null)
        and (failed_at is null or published_at is null)
        and (failed_at is not null or action in ('remove', 'redact')));

comment on table outbox_actions is 'What operators did to rows of outbox_events, by relay failed retry and discard, and relay forget. Rows are only ever added.';
