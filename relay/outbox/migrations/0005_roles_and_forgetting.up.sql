-- `@.` stands for the schema of the outbox. outbox_emit acts with the rights of the outbox's owner, so it and all that it
-- calls look up names where Postgres has its own and nowhere else: whoever may create functions and operators in the schema,
-- as everyone may in some servers' `public`, does not have them called. Types of variables have their schema written out: they
-- are looked up when a session first has a function compiled, by the search_path of whoever does, and are kept.
do $migration$
declare
    definition text;
begin
    foreach definition in array array[
-- The same time as before, in a variable of Postgres' own type.
$define$
create or replace function @.outbox_time_fault(event jsonb, field text) returns text
language plpgsql stable parallel safe
as $$
declare
    value pg_catalog.text := event ->> field;
begin
    if jsonb_typeof(event -> field) = 'string'
       -- Without a backslash: what those mean depends on a setting of the session.
       and value ~* ('^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])'
                     '[T ]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]([.][0-9]{1,9})?'
                     '(Z|[+-](0[0-9]|1[0-5]):[0-5][0-9])$')
       and value !~ '^0000'
    then
        -- The last day of the month, by way of the first.
        if substr(value, 9, 2)::integer
               <= date_part('day', (left(value, 7) || '-01')::date + interval '1 month' - interval '1 day')
           and value::timestamptz between '0001-01-01 00:00:00+00' and '9999-12-31 23:59:59.999999+00'
        then
            return null;
        end if;
    end if;
    return format('%s %s is not an RFC 3339 time with its offset', field, left(value, 64));
end
$$
$define$,

-- Whether an event may be stored: as before, with names of its own schema.
$define$
create or replace function @.outbox_fault(event jsonb) returns text
language plpgsql stable parallel safe
as $$
declare
    unknown pg_catalog.jsonb;
    fault pg_catalog.text;
begin
    if jsonb_typeof(event) is distinct from 'object' then
        return format('is of type %s, not an object', coalesce(jsonb_typeof(event), 'null'));
    end if;
    unknown := event - array['event_id', 'event_type', 'version', 'occurred_at', 'actor', 'data', 'aggregate_type',
                             'aggregate_id', 'topic', 'ordering_key', 'dedup_key', 'available_at', 'attributes',
                             'order_lock'];
    if unknown <> '{}' then
        return format('has the unknown field %s', (select min(field) from jsonb_object_keys(unknown) as field));
    end if;
    if not event ? 'data' then
        return 'has no data';
    end if;
    fault := coalesce(
        @.outbox_text_fault(event, 'event_type', 255, required => true),
        @.outbox_text_fault(event, 'aggregate_type', 255, required => true),
        @.outbox_text_fault(event, 'aggregate_id', 1024, required => true),
        @.outbox_text_fault(event, 'topic', 512),
        @.outbox_text_fault(event, 'ordering_key', 1024),
        @.outbox_text_fault(event, 'dedup_key', 1024));
    if fault is not null then
        return fault;
    end if;
    if event ->> 'event_id' !~* '^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$'
       or event ->> 'event_id' = '00000000-0000-0000-0000-000000000000' then
        return format('event_id %s is not a UUID, or is the nil UUID', left(event ->> 'event_id', 64));
    end if;
    if event ->> 'version' is not null
       and (jsonb_typeof(event -> 'version') <> 'number' or event ->> 'version' !~ '^[1-9][0-9]{0,8}$') then
        return format('version %s is not a whole number from 1 to 999999999', left(event ->> 'version', 64));
    end if;
    if event ->> 'actor' is not null then
        if jsonb_typeof(event -> 'actor') <> 'object' then
            return format('actor is of type %s, not an object', jsonb_typeof(event -> 'actor'));
        end if;
        fault := coalesce(
            @.outbox_text_fault(event -> 'actor', 'type', 255, required => true),
            @.outbox_text_fault(event -> 'actor', 'id', 1024, required => true));
        if fault is not null then
            return 'actor: ' || fault;
        end if;
    end if;
    if event ->> 'occurred_at' is not null then
        fault := @.outbox_time_fault(event, 'occurred_at');
        if fault is not null then
            return fault;
        end if;
    end if;
    if event ->> 'available_at' is not null then
        if event ->> 'ordering_key' is not null then
            return 'has available_at and ordering_key, which exclude each other: a scheduled event would hold up its key';
        end if;
        fault := @.outbox_time_fault(event, 'available_at');
        if fault is not null then
            return fault;
        end if;
    end if;
    if event ->> 'order_lock' is not null and jsonb_typeof(event -> 'order_lock') <> 'boolean' then
        return format('order_lock is of type %s, not true or false', jsonb_typeof(event -> 'order_lock'));
    end if;
    if event ->> 'attributes' is not null and event -> 'attributes' <> '{}' then
        if jsonb_typeof(event -> 'attributes') <> 'object' then
            return format('attributes is of type %s, not an object', jsonb_typeof(event -> 'attributes'));
        end if;
        return @.outbox_attributes_fault(event -> 'attributes');
    end if;
    return null;
end
$$
$define$,

-- Time-ordered like outbox_uuid7(moment), with a tail of the caller's: the next after one that was drawn at random for all
-- of a statement (RFC 9562, 6.2). Drawing one for each was the dearest part of storing many.
$define$
create function @.outbox_uuid7(moment timestamptz, tail bigint) returns uuid
language sql stable parallel safe
as $$
    select encode(
        int8send(
            (date_part('epoch', moment) * 1000000)::bigint / 1000 << 16
            | x'7000'::bigint
            | (date_part('epoch', moment) * 1000000)::bigint % 1000 * 4096 / 1000)
        || int8send(x'8000000000000000'::bigint | (tail & x'3fffffffffffffff'::bigint)), 'hex')::uuid
$$
$define$,

-- What travels, as JSON.
$define$
create function @.outbox_envelope(event jsonb, event_id uuid, occurred_at timestamptz) returns jsonb
language sql stable parallel safe
as $$
    select jsonb_build_object(
        'event_id', event_id,
        'event_type', event -> 'event_type',
        'version', coalesce(nullif(event -> 'version', 'null'), '1'),
        'occurred_at', to_char(occurred_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
        'actor', event -> 'actor',
        'data', event -> 'data')
$$
$define$,

-- What was in the way of an event that could not be stored: the event that has its dedup_key. Anything else is refused.
$define$
create function @.outbox_taken(wanted uuid, wanted_key text, out event_id uuid, out sequence bigint)
language plpgsql volatile
as $$
begin
    -- A statement of its own: its snapshot sees the event that was committed while the insert waited for it.
    select first.event_id, first.id into event_id, sequence
    from @.outbox_events as first where first.dedup_key = wanted_key;
    if sequence is not null then
        return;
    end if;
    if exists (select from @.outbox_events as taken where taken.event_id = wanted) then
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
$$
$define$,

-- Stores the events in the order of the array and answers in that order. An event whose dedup_key is taken answers with
-- the event that took it. Whoever may execute this stores events with the rights of the outbox's owner, and needs none on
-- the table.
$define$
create or replace function @.outbox_emit(events jsonb)
returns table (event_id uuid, sequence bigint, inserted boolean)
language plpgsql volatile security definer
set search_path to pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    bucket integer;
    answer pg_catalog.record;
    event pg_catalog.jsonb;
    fault pg_catalog.text;
    now pg_catalog.timestamptz;
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
        fault := @.outbox_fault(event);
        if fault is not null then
            perform @.outbox_refuse(0, fault);
        end if;
        now := clock_timestamp();
        event_id := coalesce((event ->> 'event_id')::uuid, @.outbox_uuid7(now));
        insert into @.outbox_events (event_id, event_type, aggregate_type, aggregate_id, topic, ordering_key,
                                   dedup_key, payload, attributes, available_at)
        values (event_id, event ->> 'event_type', event ->> 'aggregate_type', event ->> 'aggregate_id',
                event ->> 'topic', event ->> 'ordering_key', event ->> 'dedup_key',
                @.outbox_envelope(event, event_id, coalesce((event ->> 'occurred_at')::timestamptz, now)),
                coalesce(nullif(event -> 'attributes', 'null'), '{}'),
                coalesce((event ->> 'available_at')::timestamptz, '-infinity'))
        on conflict do nothing
        returning id into sequence;
        inserted := sequence is not null;
        if not inserted then
            select taken.event_id, taken.sequence into event_id, sequence
            from @.outbox_taken(event_id, event ->> 'dedup_key') as taken;
        end if;
        return next;
        return;
    end if;

    -- With room for an array of any length.
    tail := hashtextextended(gen_random_uuid()::text, 0) >> 2;
    for answer in
        with checked as materialized (
            select position, item, clock_timestamp() as now, @.outbox_fault(item) as fault
            from jsonb_array_elements(events) with ordinality as e (item, position)
        ), input as materialized (
            select position, item, event_id, item ->> 'dedup_key' as dedup_key,
                   @.outbox_envelope(item, event_id, coalesce((item ->> 'occurred_at')::timestamptz, now)) as payload,
                   coalesce(nullif(item -> 'attributes', 'null'), '{}') as attributes
            from (
                select position, item, now,
                       coalesce((item ->> 'event_id')::uuid, @.outbox_uuid7(now, tail + position)) as event_id
                from checked
                where case when fault is null then true else @.outbox_refuse(position - 1, fault) end
            ) as sound
        ), stored as (
            insert into @.outbox_events (event_id, event_type, aggregate_type, aggregate_id, topic, ordering_key,
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
            from @.outbox_taken(answer.event_id, answer.dedup_key) as taken;
        end if;
        return next;
    end loop;
end
$$
$define$
    ] loop
        -- A body ends at a quote that is longer than the schema's name: no name can end it.
        execute replace(replace(definition, '$$', '$' || repeat('_', length(current_schema())) || '$'),
                        '@.', quote_ident(current_schema()) || '.');
    end loop;
end
$migration$;

-- It may be executed by those who could insert until now, and by nobody else: a right on the function alone was none to emit.
do $$
declare
    emit constant regprocedure := 'outbox_emit(jsonb)';
    events constant regclass := 'outbox_events';
    -- What it writes; a role that may write less of a row could never emit.
    written constant text[] := array['event_id', 'event_type', 'aggregate_type', 'aggregate_id', 'topic', 'ordering_key',
                                     'dedup_key', 'payload', 'attributes', 'available_at'];
    owner constant oid := (select relowner from pg_class where oid = events);
    revokes text[];
    grants text[];
    command text;
begin
    -- Whoever migrates may be a superuser: what outbox_emit is and calls belongs to whose rights it acts with.
    for command in
        select format('alter function %s owner to %I', part, pg_get_userbyid(owner))
          from unnest(array[emit, 'outbox_uuid7(timestamptz, bigint)', 'outbox_envelope(jsonb, uuid, timestamptz)',
                            'outbox_taken(uuid, text)']::regprocedure[]) as part
         where owner <> (select proowner from pg_proc where oid = part)
    loop
        execute command;
    end loop;
    select array_agg(format('revoke execute on function outbox_emit(jsonb) from %s cascade',
                            case grantee when 0 then 'public' else quote_ident(pg_get_userbyid(grantee)) end))
    into revokes
    from (select distinct (aclexplode(coalesce(proacl, acldefault('f', proowner)))).grantee
            from pg_proc where oid = emit) as executing
    where grantee <> owner;
    -- Those who could pass on the right still can; the right of everyone cannot be passed on.
    select array_agg(format('grant execute on function outbox_emit(jsonb) to %s%s',
                            case grantee when 0 then 'public' else quote_ident(pg_get_userbyid(grantee)) end,
                            case when grantable and grantee <> 0 then ' with grant option' end))
    into grants
    from (select grantee, bool_or(is_grantable) as grantable
            from (select (aclexplode(relacl)).* from pg_class where oid = events
                   union all
                  select (aclexplode(attacl)).* from pg_attribute where attrelid = events) as granted
           where privilege_type = 'INSERT'
           group by grantee) as inserting
    where grantee <> owner
      and (select bool_and(has_column_privilege(grantee, events, name, 'insert')) from unnest(written) as name);
    foreach command in array coalesce(revokes, '{}') || coalesce(grants, '{}') loop
        execute command;
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
