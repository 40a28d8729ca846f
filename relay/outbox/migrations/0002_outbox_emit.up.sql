-- The one road into the outbox, for every language. It cannot see whether the caller is in autocommit
-- mode: call it in the transaction that makes the change.

-- Time-ordered (RFC 9562, version 7): 48 bits of milliseconds, 12 bits of their fraction, 62 random bits.
create function outbox_uuid7() returns uuid
language sql volatile parallel safe
as $$
    select encode(
        int8send(((micros / 1000) << 16) | x'7000'::bigint | (micros % 1000 * 4096 / 1000))
        || substring(uuid_send(gen_random_uuid()) from 9), 'hex')::uuid
    from (select (extract(epoch from clock_timestamp()) * 1000000)::bigint as micros) as clock
$$;

-- A time that means the same on every server: nothing is left to the session's time zone.
create function outbox_is_rfc3339(value text) returns boolean
language sql immutable parallel safe
as $$
    select value ~* '^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)$'
$$;

-- What is wrong with an event's own attributes, in words, or null. The broker takes 100; the relay sets 6 of them.
create function outbox_attributes_fault(attributes jsonb) returns text
language sql immutable parallel safe
as $$
    select case
        when count(*) > 94 then format('has %s attributes, the limit is 94', count(*))
        else min(case
            when jsonb_typeof(value) <> 'string'
                then format('attribute %s is of type %s, not a text', quote_ident(left(key, 64)), jsonb_typeof(value))
            when octet_length(value #>> '{}') > 1024
                then format('attribute %s has a value of %s bytes, the limit is 1024',
                            quote_ident(left(key, 64)), octet_length(value #>> '{}'))
            when octet_length(key) not between 1 and 256
                then format('attribute %s has a name of %s bytes, the limit is 1 to 256',
                            quote_ident(left(key, 64)), octet_length(key))
            when key ^@ 'goog' then format('attribute %s: names that start with goog are the broker''s', quote_ident(key))
            when key in ('event_id', 'event_type', 'aggregate_type', 'aggregate_id', 'created_at', 'sequence')
                then format('attribute %s is set by the relay itself', key)
        end)
    end
    from jsonb_each(attributes)
$$;

-- What is wrong with an event, in words, or null. Limits are in bytes; they are the broker's, or leave room for it.
create function outbox_fault(event jsonb) returns text
language sql stable parallel safe
as $$
    select case
        when jsonb_typeof(event) is distinct from 'object'
            then format('is of type %s, not an object', coalesce(jsonb_typeof(event), 'null'))
        when event - array['event_id', 'event_type', 'version', 'occurred_at', 'actor', 'data', 'aggregate_type',
                           'aggregate_id', 'topic', 'ordering_key', 'dedup_key', 'available_at', 'attributes',
                           'order_lock'] <> '{}'
            then format('has the unknown field %s', (
                select quote_ident(min(field)) from jsonb_object_keys(event) as field
                where field not in ('event_id', 'event_type', 'version', 'occurred_at', 'actor', 'data', 'aggregate_type',
                                    'aggregate_id', 'topic', 'ordering_key', 'dedup_key', 'available_at', 'attributes',
                                    'order_lock')))
        when not event ? 'data' then 'has no data'
        when jsonb_typeof(event -> 'event_type') is distinct from 'string'
             or octet_length(event ->> 'event_type') not between 1 and 255
            then 'event_type must be a text of 1 to 255 bytes'
        when jsonb_typeof(event -> 'aggregate_type') is distinct from 'string'
             or octet_length(event ->> 'aggregate_type') not between 1 and 255
            then 'aggregate_type must be a text of 1 to 255 bytes'
        when jsonb_typeof(event -> 'aggregate_id') is distinct from 'string'
             or octet_length(event ->> 'aggregate_id') not between 1 and 1024
            then 'aggregate_id must be a text of 1 to 1024 bytes'
        when event ->> 'event_id' is not null and (
                 event ->> 'event_id' !~* '^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$'
                 or event ->> 'event_id' = '00000000-0000-0000-0000-000000000000')
            then format('event_id %s is not a UUID, or is the nil UUID', left(event ->> 'event_id', 64))
        when event ->> 'version' is not null and (
                 jsonb_typeof(event -> 'version') <> 'number' or event ->> 'version' !~ '^[1-9][0-9]{0,8}$')
            then format('version %s is not a whole number from 1', left(event ->> 'version', 32))
        when event ->> 'actor' is not null and (
                 jsonb_typeof(event -> 'actor') <> 'object'
                 or coalesce(event -> 'actor' ->> 'type', '') = '' or coalesce(event -> 'actor' ->> 'id', '') = '')
            then 'actor must be an object with type and id'
        when event ->> 'occurred_at' is not null and (
                 jsonb_typeof(event -> 'occurred_at') <> 'string' or not outbox_is_rfc3339(event ->> 'occurred_at'))
            then format('occurred_at %s is not an RFC 3339 time with its offset', left(event ->> 'occurred_at', 64))
        when event ->> 'available_at' is not null and (
                 jsonb_typeof(event -> 'available_at') <> 'string' or not outbox_is_rfc3339(event ->> 'available_at'))
            then format('available_at %s is not an RFC 3339 time with its offset', left(event ->> 'available_at', 64))
        when event ->> 'topic' is not null and (
                 jsonb_typeof(event -> 'topic') <> 'string' or octet_length(event ->> 'topic') not between 1 and 512)
            then 'topic must be a text of 1 to 512 bytes'
        when event ->> 'ordering_key' is not null and (
                 jsonb_typeof(event -> 'ordering_key') <> 'string'
                 or octet_length(event ->> 'ordering_key') not between 1 and 1024)
            then format('ordering_key has %s bytes, the limit is 1 to 1024', octet_length(event ->> 'ordering_key'))
        when event ->> 'dedup_key' is not null and (
                 jsonb_typeof(event -> 'dedup_key') <> 'string'
                 or octet_length(event ->> 'dedup_key') not between 1 and 1024)
            then format('dedup_key has %s bytes, the limit is 1 to 1024', octet_length(event ->> 'dedup_key'))
        when event ->> 'order_lock' is not null and jsonb_typeof(event -> 'order_lock') <> 'boolean'
            then 'order_lock must be true or false'
        when event ->> 'ordering_key' is not null and event ->> 'available_at' is not null
            then 'available_at and ordering_key exclude each other: a scheduled event would hold up its key'
        when event ->> 'attributes' is not null and jsonb_typeof(event -> 'attributes') <> 'object'
            then 'attributes must be an object of texts'
        when event ->> 'attributes' is not null and event -> 'attributes' <> '{}'
            then outbox_attributes_fault(event -> 'attributes')
    end
$$;

-- Ends the statement with the fault of one event. Bad input of the caller is always 22023.
create function outbox_refuse(index bigint, fault text) returns boolean
language plpgsql volatile
as $$
begin
    raise exception using
        errcode = 'invalid_parameter_value',
        message = format('outbox_emit: event %s %s', index, fault);
end
$$;

-- Stores the events in the order of the array and answers in that order. An event whose dedup_key is taken
-- answers with the event that took it.
create function outbox_emit(events jsonb)
returns table (event_id uuid, sequence bigint, inserted boolean)
language plpgsql volatile
set search_path from current
as $$
#variable_conflict use_column
declare
    bucket integer;
    answer record;
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
        with sound as materialized (
            select position, item
            from jsonb_array_elements(events) with ordinality as e (item, position)
            where case when outbox_fault(item) is null then true
                       else outbox_refuse(position - 1, outbox_fault(item)) end
        ), identified as materialized (
            select position, item,
                   coalesce((item ->> 'event_id')::uuid, outbox_uuid7()) as event_id,
                   coalesce((item ->> 'occurred_at')::timestamptz, clock_timestamp()) as occurred_at
            from sound
        ), input as materialized (
            select position, item, event_id,
                   jsonb_build_object(
                       'event_id', event_id,
                       'event_type', item -> 'event_type',
                       'version', coalesce(nullif(item -> 'version', 'null'), '1'),
                       'occurred_at', to_char(occurred_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
                       'actor', item -> 'actor',
                       'data', item -> 'data') as payload,
                   coalesce(nullif(item -> 'attributes', 'null'), '{}') as attributes
            from identified
        ), measured as materialized (
            -- 512 bytes cover the names of the relay's own attributes and the framing.
            select *, 512 + octet_length(payload::text) + octet_length(attributes::text)
                          + octet_length(item ->> 'event_type') + octet_length(item ->> 'aggregate_type')
                          + octet_length(item ->> 'aggregate_id')
                          + coalesce(octet_length(item ->> 'ordering_key'), 0) as size_bytes
            from input
        ), stored as (
            insert into outbox_events (event_id, event_type, aggregate_type, aggregate_id, topic, ordering_key,
                                       dedup_key, payload, attributes, size_bytes, available_at)
            select event_id, item ->> 'event_type', item ->> 'aggregate_type', item ->> 'aggregate_id', item ->> 'topic',
                   item ->> 'ordering_key', item ->> 'dedup_key', payload, attributes, size_bytes,
                   coalesce((item ->> 'available_at')::timestamptz, '-infinity')
            from measured
            where case when size_bytes <= 9500000 then true
                       else outbox_refuse(position - 1, format('has a message of %s bytes, the limit is 9500000',
                                                               size_bytes)) end
            order by position
            on conflict (dedup_key) where dedup_key is not null do nothing
            returning event_id, id
        )
        select input.event_id, stored.id, item ->> 'dedup_key' as dedup_key
        from input left join stored using (event_id)
        order by position
    loop
        event_id := answer.event_id;
        sequence := answer.id;
        inserted := answer.id is not null;
        if not inserted then
            -- A statement of its own: its snapshot sees the event that was committed while the insert waited for it.
            select first.event_id, first.id into event_id, sequence
            from outbox_events as first where first.dedup_key = answer.dedup_key;
            if not found then
                raise exception using
                    errcode = 'serialization_failure',
                    message = format('outbox_emit: the event with dedup_key %s was removed meanwhile', answer.dedup_key),
                    hint = 'Run the transaction again.';
            end if;
        end if;
        return next;
    end loop;
end
$$;

comment on function outbox_emit(jsonb) is 'Stores events in the caller''s transaction: array of {event_type, aggregate_type, aggregate_id, data, ...}.';
