-- What was forgotten stays on record: the table goes back only when it holds nothing that the older one cannot.
do $$
declare
    kept bigint;
begin
    lock table outbox_actions in access exclusive mode;
    select count(*) into kept from outbox_actions where action in ('remove', 'redact');
    if kept > 0 then
        raise exception using
            errcode = 'object_in_use',
            message = format('outbox_actions still holds %s record(s) of rows that were forgotten', kept),
            hint = 'Put them where you keep such records, and try again: create table outbox_forgotten as select * from '
                   'outbox_actions where action in (''remove'', ''redact''); delete from outbox_actions where action in '
                   '(''remove'', ''redact''). Nothing was changed.';
    end if;
end
$$;

comment on table outbox_actions is 'What operators did to failed rows of outbox_events, by relay failed retry and discard. Rows are only ever added.';
alter table outbox_actions
    drop constraint outbox_actions_state,
    drop constraint outbox_actions_why,
    drop constraint outbox_actions_action,
    drop column published_at,
    add constraint outbox_actions_action check (action in ('retry', 'discard')),
    add constraint outbox_actions_why check (
        char_length(why) between 1 and 1024 and (action <> 'discard' or why is not null)),
    alter failure_reason set not null,
    alter failed_at set not null;

create or replace function outbox_emit(events jsonb)
returns table (event_id uuid, sequence bigint, inserted boolean)
language plpgsql volatile
set search_path from current
as $$
#variable_conflict use_column
declare
    bucket integer;
    answer record;
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
    for bucket in
        select distinct hashtext(item ->> 'ordering_key') & 1023
        from jsonb_array_elements(events) as item
        where item ->> 'ordering_key' is not null and item -> 'order_lock' is distinct from 'false'
        order by 1
    loop
        perform pg_advisory_xact_lock(1869968482, bucket);
    end loop;

    for answer in
        with checked as materialized (
            select position, item, clock_timestamp() as now, outbox_fault(item) as fault
            from jsonb_array_elements(events) with ordinality as e (item, position)
        ), input as materialized (
            select position, item, event_id, item ->> 'dedup_key' as dedup_key,
                   jsonb_build_object(
                       'event_id', event_id,
                       'event_type', item -> 'event_type',
                       'version', coalesce(nullif(item -> 'version', 'null'), '1'),
                       'occurred_at', to_char(occurred_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
                       'actor', item -> 'actor',
                       'data', item -> 'data') as payload,
                   coalesce(nullif(item -> 'attributes', 'null'), '{}') as attributes
            from (
                select position, item,
                       coalesce((item ->> 'event_id')::uuid, outbox_uuid7(now)) as event_id,
                       coalesce((item ->> 'occurred_at')::timestamptz, now) as occurred_at
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
        elsif answer.dedup_key is not null and sequence is null then
            -- A statement of its own: its snapshot sees the event that was committed while the insert waited for it.
            select first.event_id, first.id into event_id, sequence
            from outbox_events as first where first.dedup_key = answer.dedup_key;
        end if;
        if not inserted and (answer.dedup_key is null or sequence is null) then
            if exists (select from outbox_events as taken where taken.event_id = answer.event_id) then
                raise exception using
                    errcode = 'unique_violation',
                    message = format('outbox_emit: the event %s is in the outbox already', answer.event_id);
            end if;
            if answer.dedup_key is null then
                raise exception using
                    errcode = 'object_not_in_prerequisite_state',
                    message = format('outbox_emit: the event %s met a row that it cannot see, or an id that is taken',
                                     answer.event_id),
                    hint = 'Is the identity of outbox_events.id behind its greatest id? Then set it forward.';
            end if;
            raise exception using
                errcode = 'serialization_failure',
                message = format('outbox_emit: the event with dedup_key %s was removed meanwhile', answer.dedup_key),
                hint = 'Run the transaction again.';
        end if;
        return next;
    end loop;
end
$$;

create or replace function outbox_time_fault(event jsonb, field text) returns text
language plpgsql stable parallel safe
as $$
declare
    value text := event ->> field;
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
$$;

create or replace function outbox_fault(event jsonb) returns text
language plpgsql stable parallel safe
as $$
declare
    unknown jsonb;
    fault text;
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
        outbox_text_fault(event, 'event_type', 255, required => true),
        outbox_text_fault(event, 'aggregate_type', 255, required => true),
        outbox_text_fault(event, 'aggregate_id', 1024, required => true),
        outbox_text_fault(event, 'topic', 512),
        outbox_text_fault(event, 'ordering_key', 1024),
        outbox_text_fault(event, 'dedup_key', 1024));
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
            outbox_text_fault(event -> 'actor', 'type', 255, required => true),
            outbox_text_fault(event -> 'actor', 'id', 1024, required => true));
        if fault is not null then
            return 'actor: ' || fault;
        end if;
    end if;
    if event ->> 'occurred_at' is not null then
        fault := outbox_time_fault(event, 'occurred_at');
        if fault is not null then
            return fault;
        end if;
    end if;
    if event ->> 'available_at' is not null then
        if event ->> 'ordering_key' is not null then
            return 'has available_at and ordering_key, which exclude each other: a scheduled event would hold up its key';
        end if;
        fault := outbox_time_fault(event, 'available_at');
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
        return outbox_attributes_fault(event -> 'attributes');
    end if;
    return null;
end
$$;

drop function outbox_taken(uuid, text);
drop function outbox_envelope(jsonb, uuid, timestamptz);
drop function outbox_uuid7(timestamptz, bigint);

-- The older function acts with the caller's rights: whoever may execute this one gets those that it needs.
do $$
declare
    emitter record;
begin
    for emitter in
        select case grantee when 0 then 'public' else quote_ident(pg_get_userbyid(grantee)) end as name
          from (select distinct (aclexplode(proacl)).grantee, proowner
                  from pg_proc where oid = 'outbox_emit(jsonb)'::regprocedure) as executing
         where grantee <> proowner
    loop
        execute format('grant insert, select (id, event_id, dedup_key) on outbox_events to %s', emitter.name);
    end loop;
end
$$;
grant execute on function outbox_emit(jsonb) to public;
